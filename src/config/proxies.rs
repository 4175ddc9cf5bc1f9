//! Which proxies may speak for others, and what their objectives stand for.

use std::net::IpAddr;

use ipnet::IpNet;

use super::ConfigError;
use super::values::Reader;
use forebay_core::request::Priority;

/// Networks, or addresses that stand for themselves.
pub fn trusted(read: &Reader) -> Result<Vec<IpNet>, ConfigError> {
    const KEY: &str = "server.trusted_proxies";
    let network = |text: &String| {
        let parsed = text.parse::<IpNet>().ok().or_else(|| Some(text.parse::<IpAddr>().ok()?.into()));
        parsed.ok_or_else(|| read.refuse(KEY, "a list of networks, such as 10.0.0.0/8, or addresses".into()))
    };
    read.list(KEY).iter().map(network).collect()
}

/// `name=priority`, each name once.
pub fn objectives(read: &Reader) -> Result<Vec<(String, Priority)>, ConfigError> {
    const KEY: &str = "server.objectives";
    let mut objectives: Vec<(String, Priority)> = Vec::new();
    for entry in read.list(KEY) {
        let pair = entry.split_once('=').map(|(name, priority)| (name.trim(), Priority::from_name(priority.trim())));
        match pair {
            Some((name, Some(priority))) if !name.is_empty() && objectives.iter().all(|(known, _)| known != name) => {
                objectives.push((name.to_owned(), priority));
            }
            _ => {
                let allowed =
                    "a list of name=priority, each name once, with a priority of critical, high, normal, low or batch";
                return Err(read.refuse(KEY, allowed.into()));
            }
        }
    }
    Ok(objectives)
}
