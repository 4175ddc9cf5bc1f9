//! The settings of the queue in front of the scheduler.

use super::config::Config;
use super::strategy::StrategyKind;
use crate::request::Priority;
use crate::settings::Setting;
use crate::units::Micros;

type Row = Setting<Config>;

const MOST: u64 = 10_000_000;

/// In the order of config.yaml.
pub fn settings() -> Vec<Row> {
    queue().into_iter().chain(release()).chain(classes()).collect()
}

fn queue() -> [Row; 3] {
    [
        Setting::new("batching.queue_capacity", |c: &mut Config| &mut c.capacity.requests)
            .whole(1..=MOST)
            .flag("queue-capacity")
            .tuned("limits")
            .help("sequences that may be queued; beyond it, 429 (critical and high have an eighth more)"),
        Setting::new("batching.queue_token_capacity", |c: &mut Config| &mut c.capacity.tokens)
            .whole(1..=1_000_000_000_000)
            .flag("queue-token-capacity")
            .tuned("limits")
            .help("prompt tokens that may be queued; beyond it, 429 (critical and high have an eighth more)"),
        Setting::new("batching.queue_timeout", |c: &mut Config| &mut c.queue_timeout)
            .duration(Micros::MILLISECOND..=Micros::DAY)
            .tuned("limits")
            .help("a request that no batch took by then gets 504"),
    ]
}

/// When a gathered group goes.
fn release() -> Vec<Row> {
    let rows = [
        Setting::one_of(
            "batching.strategy",
            |c: &mut Config| &mut c.flush.strategy,
            StrategyKind::ALL.map(|kind| (kind.name(), kind)),
        )
        .flag("strategy")
        .help("when gathered requests are released"),
        Setting::new("batching.idle_release", |c: &mut Config| &mut c.flush.idle_release)
            .help("an idle engine takes what is there at once, whatever the strategy"),
        Setting::new("batching.min_batch_size", |c: &mut Config| &mut c.flush.min_batch_size)
            .whole(1..=MOST)
            .help("smallest group that is released before its timer"),
        Setting::new("batching.max_batch_size", |c: &mut Config| &mut c.flush.max_batch_size)
            .whole(1..=MOST)
            .help("largest group that is released at once"),
        Setting::new("batching.min_wait_ms", |c: &mut Config| &mut c.flush.min_wait)
            .millis(Micros::ZERO..=Micros::HOUR)
            .help("shortest wait for a group"),
        Setting::new("batching.max_wait_ms", |c: &mut Config| &mut c.flush.max_wait)
            .millis(Micros::ZERO..=Micros::HOUR)
            .help("longest wait for a group"),
        Setting::new("batching.queue_depth_low_threshold", |c: &mut Config| &mut c.flush.queue_depth_low)
            .whole(0..=MOST)
            .help("at or below: max_wait_ms"),
        Setting::new("batching.queue_depth_high_threshold", |c: &mut Config| &mut c.flush.queue_depth_high)
            .whole(0..=MOST)
            .help("at or above: min_wait_ms"),
        Setting::new("batching.target_p99_ms", |c: &mut Config| &mut c.flush.target_p99)
            .millis(Micros::MILLISECOND..=Micros::HOUR)
            .help("p99 TTFT that latency_aware aims at"),
        Setting::new("batching.token_bucketing_enabled", |c: &mut Config| &mut c.flush.bucketing)
            .help("prefills of one group are alike in length"),
        Setting::new("batching.priority_enabled", |c: &mut Config| &mut c.flush.priorities).help("honour priorities"),
    ];
    rows.map(|row| row.tuned("strategy")).into()
}

/// Settings of what a class and a tenant may count on.
fn classes() -> Vec<Row> {
    let waits = [
        Setting::new("batching.max_wait_critical_ms", |c: &mut Config| &mut c.max_waits[Priority::Critical.index()])
            .help("released by then whatever the strategy says"),
        Setting::new("batching.max_wait_high_ms", |c: &mut Config| &mut c.max_waits[Priority::High.index()])
            .help("the same for priority high"),
        Setting::new("batching.max_wait_normal_ms", |c: &mut Config| &mut c.max_waits[Priority::Normal.index()])
            .help("the same for priority normal"),
        Setting::new("batching.max_wait_low_ms", |c: &mut Config| &mut c.max_waits[Priority::Low.index()])
            .help("the same for priority low"),
    ];
    let waits = waits.map(|row| row.millis(Micros::ZERO..=Micros::HOUR));
    let order = [
        Setting::new("batching.aging_ms", |c: &mut Config| &mut c.aging)
            .millis(Micros::MILLISECOND..=Micros::HOUR)
            .help("a class that waits gets a turn after so much computing for others, times its rank (high 1, normal 2, low 3)"),
        Setting::new("batching.fair_share_max", |c: &mut Config| &mut c.fairness.max_seat_share)
            .real(0.001..=1.0)
            .help("share of the seats that one tenant may hold while others wait"),
    ];
    waits.into_iter().chain(order).map(|row| row.tuned("limits")).collect()
}
