//! Which proxies may speak for others, and what their objectives stand for.

use std::net::IpAddr;

use ipnet::IpNet;

use forebay_core::request::Priority;
use forebay_core::settings::list;

pub const NETWORKS: &str = "a list of networks, such as 10.0.0.0/8, or addresses";
pub const OBJECTIVES: &str =
    "a list of name=priority, each name once, with a priority of critical, high, normal, low or batch";

/// This machine.
pub fn loopback() -> Vec<IpNet> {
    networks("127.0.0.0/8,::1/128").unwrap_or_default()
}

pub fn shown_networks(networks: &[IpNet]) -> String {
    networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Networks, or addresses that stand for themselves.
pub fn networks(text: &str) -> Option<Vec<IpNet>> {
    let network = |text: &String| text.parse::<IpNet>().ok().or_else(|| Some(text.parse::<IpAddr>().ok()?.into()));
    list(text).iter().map(network).collect()
}

pub fn shown_objectives(objectives: &[(String, Priority)]) -> String {
    let pair = |(name, priority): &(String, Priority)| format!("{name}={}", priority.name());
    objectives.iter().map(pair).collect::<Vec<_>>().join(",")
}

/// `name=priority`, each name once.
pub fn objectives(text: &str) -> Option<Vec<(String, Priority)>> {
    let mut objectives: Vec<(String, Priority)> = Vec::new();
    for entry in list(text) {
        let (name, priority) = entry.split_once('=')?;
        let (name, priority) = (name.trim(), Priority::from_name(priority.trim())?);
        if name.is_empty() || objectives.iter().any(|(known, _)| known == name) {
            return None;
        }
        objectives.push((name.to_owned(), priority));
    }
    Some(objectives)
}
