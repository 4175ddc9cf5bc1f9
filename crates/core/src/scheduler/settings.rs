//! The settings of the scheduler: seats, steps, who computes first, and heat.

use super::config::Config;
use super::lookup::Speculative;
use super::policy::PolicyKind;
use super::policy::thermal::Thresholds;
use super::preempt::Preemption;
use crate::settings::Setting;
use crate::units::Micros;

type Row = Setting<Config>;

/// In the order of config.yaml, section by section.
pub fn settings() -> Vec<Row> {
    order().into_iter().chain(promises()).chain(steps()).collect()
}

fn order() -> [Row; 5] {
    [
        Setting::one_of(
            "batching.policy",
            |c: &mut Config| &mut c.policy.kind,
            PolicyKind::ALL.map(|kind| (kind.name(), kind)),
        )
        .flag("policy")
        .tuned("policy")
        .help("who computes first in a step"),
        Setting::new("batching.decode_burst_budget", |c: &mut Config| &mut c.policy.decode_burst_budget)
            .whole(1..=4_096)
            .tuned("policy")
            .help("decode steps for which throughput_first puts prompts off at most"),
        Setting::new("batching.min_batch", |c: &mut Config| &mut c.policy.min_batch)
            .whole(1..=65_536)
            .tuned("policy")
            .help("fewer sequences that decode are no group: each is one of its own"),
        Setting::new("batching.max_batch", |c: &mut Config| &mut c.policy.max_batch)
            .whole(1..=65_536)
            .tuned("policy")
            .help("sequences that decode in one group at most; not less than min_batch"),
        Setting::new("batching.max_stall_ms", |c: &mut Config| &mut c.max_stall)
            .zero_is_off()
            .millis(Micros::ZERO..=Micros::HOUR)
            .flag("max-stall-ms")
            .tuned("limits")
            .help("prefill in a step is cut so that running streams wait no longer (by measured cost); up to 4 times as long under throughput_first and latency_first; 0 is off"),
    ]
}

/// What policy `slo` goes by, class by class.
fn promises() -> Vec<Row> {
    let ttft = [
        Setting::new("batching.slo_critical_ttft_ms", |c: &mut Config| &mut c.slo.promises[0].ttft),
        Setting::new("batching.slo_high_ttft_ms", |c: &mut Config| &mut c.slo.promises[1].ttft),
        Setting::new("batching.slo_normal_ttft_ms", |c: &mut Config| &mut c.slo.promises[2].ttft),
        Setting::new("batching.slo_low_ttft_ms", |c: &mut Config| &mut c.slo.promises[3].ttft),
    ];
    let itl = [
        Setting::new("batching.slo_critical_itl_ms", |c: &mut Config| &mut c.slo.promises[0].itl),
        Setting::new("batching.slo_high_itl_ms", |c: &mut Config| &mut c.slo.promises[1].itl),
        Setting::new("batching.slo_normal_itl_ms", |c: &mut Config| &mut c.slo.promises[2].itl),
        Setting::new("batching.slo_low_itl_ms", |c: &mut Config| &mut c.slo.promises[3].itl),
    ];
    let ttft = ttft.map(|row| row.help("time to the first token that the policy slo promises to this class"));
    let itl = itl.map(|row| row.help("mean time between two tokens that the policy slo promises to this class"));
    let rows = ttft.into_iter().zip(itl).flat_map(|(ttft, itl)| [ttft, itl]);
    let millis = |row: Row| row.millis(Micros::MILLISECOND..=Micros::HOUR).tuned("policy");
    let refuses = Setting::new("batching.slo_refuse", |c: &mut Config| &mut c.slo.refuses).tuned("policy").help(
        "under slo, a request whose promise cannot be kept gets 429 at once; else it is served as well as it goes",
    );
    rows.map(millis).chain([refuses]).collect()
}

fn steps() -> [Row; 5] {
    [
        Setting::new("engine.max_num_seqs", |c: &mut Config| &mut c.max_num_seqs)
            .whole(1..=65_536)
            .flag("max-num-seqs")
            .tuned("limits")
            .sized_at_start()
            .help("sequences that run at once"),
        Setting::new("engine.max_num_batched_tokens", |c: &mut Config| &mut c.max_num_batched_tokens)
            .whole(1..=1 << 20)
            .flag("max-num-batched-tokens")
            .tuned("limits")
            .sized_at_start()
            .help("tokens that one step may compute"),
        Setting::one_of(
            "engine.preemption",
            |c: &mut Config| &mut c.preemption,
            Preemption::ALL.map(|kind| (kind.name(), kind)),
        )
        .flag("preemption")
        .tuned("policy")
        .help("who gives its blocks back when the KV cache is full"),
        Setting::one_of(
            "engine.speculative",
            |c: &mut Config| &mut c.speculative,
            Speculative::ALL.map(|kind| (kind.name(), kind)),
        )
        .flag("speculative")
        .help("prompt_lookup guesses tokens from earlier text and checks them in the same step: the same answers in fewer steps"),
        Setting::new("kv_cache.prefix_caching", |c: &mut Config| &mut c.prefix_caching)
            .help("requests that begin alike share the blocks of what they begin with"),
    ]
}

/// Where the levels of heat begin.
pub fn thermal_settings() -> Vec<Setting<Thresholds>> {
    let rows = [
        Setting::new("thermal.fair_celsius", |t: &mut Thresholds| &mut t.fair).help("from here: level fair"),
        Setting::new("thermal.serious_celsius", |t: &mut Thresholds| &mut t.serious)
            .help("from here the batch is halved"),
        Setting::new("thermal.critical_celsius", |t: &mut Thresholds| &mut t.critical)
            .help("from here new requests get 503"),
        Setting::new("thermal.emergency_celsius", |t: &mut Thresholds| &mut t.emergency)
            .help("from here nothing is computed"),
    ];
    rows.map(|row| row.whole(1..=150).live()).into()
}
