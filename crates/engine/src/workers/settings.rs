//! The settings of other servers that take requests, and of every worker's circuit breaker.

use forebay_core::settings::Setting;
use forebay_core::units::Micros;

use super::upstream::UpstreamConfig;
use forebay_core::workers::breaker::BreakerConfig;

/// How long an upstream may take for what.
pub fn upstream_settings() -> Vec<Setting<UpstreamConfig>> {
    vec![
        Setting::new("workers.connect_timeout", |c: &mut UpstreamConfig| &mut c.connect_timeout)
            .duration(Micros::MILLISECOND..=Micros::HOUR)
            .help("an upstream that cannot be reached within has failed"),
        Setting::new("workers.response_timeout", |c: &mut UpstreamConfig| &mut c.response_timeout)
            .duration(Micros::MILLISECOND..=Micros::DAY)
            .help("an upstream's answer begins within; without streaming that is the whole completion"),
        Setting::new("workers.idle_timeout", |c: &mut UpstreamConfig| &mut c.idle_timeout)
            .duration(Micros::MILLISECOND..=Micros::DAY)
            .help("an upstream may fall silent in the middle of an answer for so long"),
        Setting::new("health.check_timeout", |c: &mut UpstreamConfig| &mut c.check_timeout)
            .duration(Micros::MILLISECOND..=Micros::HOUR)
            .help("a check that takes longer has failed"),
    ]
}

/// When a worker is given a rest.
pub fn breaker_settings() -> Vec<Setting<BreakerConfig>> {
    vec![
        Setting::new("health.failure_threshold", |c: &mut BreakerConfig| &mut c.failures)
            .whole(1..=1_000_000)
            .help("failures in a row that open a worker's breaker"),
        Setting::new("health.recovery_timeout", |c: &mut BreakerConfig| &mut c.open_for)
            .duration(Micros::MILLISECOND..=Micros::DAY)
            .help("until an open breaker lets one request through to try"),
    ]
}
