//! The settings of the store and of the Batch API's runner.

use forebay_core::settings::Setting;

use super::config::Config;
use super::jobs;
use super::location::Location;

/// In the order of config.yaml.
pub fn settings() -> Vec<Setting<Config>> {
    vec![
        Setting::own(
            "store.url",
            |c: &mut Config| &mut c.location,
            Location::FORMS,
            Location::spelled,
            Location::parse,
        )
        .flag("store")
        .help("files, batches and who changed what: sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE, or memory (kept until the end)"),
        Setting::new("store.max_mib", |c: &mut Config| &mut c.max_mib)
            .zero_is_off()
            .whole(0..=1 << 24)
            .help("MiB that the SQLite file may have; 0 is as many as the disk"),
    ]
}

pub fn jobs_settings() -> Vec<Setting<jobs::Config>> {
    vec![
        Setting::new("batches.concurrency", |c: &mut jobs::Config| &mut c.concurrency)
            .whole(1..=4_096)
            .help("lines of batches that are asked for at once; they run in the lowest class, on what others leave"),
    ]
}
