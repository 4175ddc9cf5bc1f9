//! Headers by which a gateway speaks of a request: whose it is, what it is for, how fast it should be. They are a gateway's to
//! set; from everybody else they would be a way to the front of the queue, so they are taken out and named as ignored.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use forebay_core::request::Priority;

/// Whom the fair share counts a request for, as llm-d names it, and as the Gateway API Inference Extension did before.
pub const FAIRNESS_IDS: [&str; 2] = ["x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"];
/// What it is for.
pub const OBJECTIVES: [&str; 2] = ["x-llm-d-inference-objective", "x-gateway-inference-objective"];
/// Milliseconds until its first token, and for each one after.
pub const SLO_TTFT: &str = "x-llm-d-slo-ttft-ms";
pub const SLO_TPOT: &str = "x-llm-d-slo-tpot-ms";

/// Who may speak for others, and what their words mean.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    pub trusted: Vec<IpNet>,
    /// Names of objectives and what they stand for; the names of priorities stand for themselves.
    pub objectives: Arc<[(String, Priority)]>,
}

impl Proxies {
    pub fn trust(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.trusted.iter().any(|network| network.contains(&peer))
    }

    /// `None` is an objective that nobody told us of.
    pub fn priority(&self, objective: &str) -> Option<Priority> {
        let told = self.objectives.iter().find(|(name, _)| name == objective).map(|(_, priority)| *priority);
        told.or_else(|| Priority::from_name(objective))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_trusted_goes_by_network() {
        let trusted = ["10.0.0.0/8", "::1/128", "192.168.1.7/32"].map(|network| network.parse().unwrap()).to_vec();
        let proxies = Proxies { trusted, ..Proxies::default() };
        let trusts = |peer: &str| proxies.trust(peer.parse().unwrap());
        assert!(trusts("10.1.2.3") && trusts("::1") && trusts("192.168.1.7") && trusts("::ffff:10.0.0.1"));
        assert!(!trusts("11.0.0.1") && !trusts("127.0.0.1") && !trusts("192.168.1.8") && !trusts("::2"));
    }

    #[test]
    fn objectives_have_names_of_their_own() {
        let objectives = Arc::from([("chat".to_owned(), Priority::High), ("low".to_owned(), Priority::Normal)]);
        let proxies = Proxies { objectives, ..Proxies::default() };
        for (name, expected) in [
            ("chat", Some(Priority::High)),
            ("low", Some(Priority::Normal)),
            ("critical", Some(Priority::Critical)),
            ("unheard", None),
        ] {
            assert_eq!(proxies.priority(name), expected, "{name}");
        }
    }
}
