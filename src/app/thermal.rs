//! Reads the machine's temperature and tells the engines.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::config::{Config, ThermalConfig};
use forebay_core::scheduler::thermal::Reading;
use forebay_engine::workers::Pool;

/// Until the end, with the sensor that the configuration in force names.
pub async fn watch(mut live: watch::Receiver<Arc<Config>>, workers: Pool) {
    loop {
        let config = live.borrow_and_update().thermal.clone();
        tokio::select! {
            () = observe(&config, &workers) => return,
            changed = changed(&mut live, &config) => if changed.is_none() { return },
        }
    }
}

/// Resolves when another sensor or interval is in force; `None` when nothing will change any more.
async fn changed(live: &mut watch::Receiver<Arc<Config>>, config: &ThermalConfig) -> Option<()> {
    let other = |next: &Arc<Config>| (&next.thermal.path, next.thermal.interval) != (&config.path, config.interval);
    live.wait_for(other).await.ok().map(|_| ())
}

/// Until the end of the workers; without a sensor there is nothing to observe.
async fn observe(config: &ThermalConfig, workers: &Pool) {
    let Some(path) = &config.path else { return workers.ended().await };
    let mut ticks = interval(config.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut lost = false;
    loop {
        ticks.tick().await;
        let folder = path.clone();
        // Files of sysfs answer from the kernel, but a path of the operator's choice may hang.
        let reading = tokio::task::spawn_blocking(move || read(&folder)).await.unwrap_or(Reading::Lost);
        if (reading == Reading::Lost) != lost {
            lost = !lost;
            tracing::warn!(event = "thermal_sensor", lost, path = %path.display(), "the temperature sensor changed its state");
        }
        workers.temperature(reading).await;
        if workers.is_ending() {
            return;
        }
    }
}

/// The hottest of `path/thermal_zone*/temp`, or of the file `path` itself; in thousandths of a degree, as Linux has it.
fn read(path: &Path) -> Reading {
    let hottest = files(path).iter().filter_map(|file| degrees(file)).reduce(f64::max);
    hottest.map_or(Reading::Lost, Reading::Celsius)
}

fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let zone = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("thermal_zone");
    entries.flatten().filter(|entry| zone(&entry.file_name())).map(|entry| entry.path().join("temp")).collect()
}

fn degrees(file: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(text.trim().parse::<i64>().ok()? as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_zone_counts_and_garbage_does_not() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), Reading::Lost);
        for (zone, text) in [
            ("thermal_zone0", "41000\n"),
            ("thermal_zone1", "85500\n"),
            ("thermal_zone2", "hot"),
            ("cooling_device0", "99000"),
        ] {
            std::fs::create_dir(folder.path().join(zone)).unwrap();
            std::fs::write(folder.path().join(zone).join("temp"), text).unwrap();
        }
        assert_eq!(read(folder.path()), Reading::Celsius(85.5));
        assert_eq!(read(&folder.path().join("thermal_zone0/temp")), Reading::Celsius(41.0));
        assert_eq!(read(&folder.path().join("nowhere")), Reading::Lost);
    }
}
