//! The names by which this server may be called. A page of another site can have its own name resolve to this machine (DNS
//! rebinding) and is then, to the browser, at its own origin: everything that it asks for is allowed, but it cannot keep its
//! name out of `Host`. So where no API key is asked for, and for `/admin` always, `Host` must be an address, `localhost`, or a name
//! that the operator has listed in `server.hosts`.

use std::net::IpAddr;

use axum::http::uri::Authority;

/// Names beside addresses and `localhost`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hosts {
    #[default]
    None,
    /// In lower case; `.example.org` stands for all names below it.
    These(Vec<String>),
    Any,
}

impl Hosts {
    /// `*`, or names that the configuration has checked.
    pub fn of(names: &[String]) -> Hosts {
        match names {
            [] => Hosts::None,
            [star] if star == "*" => Hosts::Any,
            names => Hosts::These(names.iter().map(|name| name.to_ascii_lowercase()).collect()),
        }
    }

    /// Whether a request may say that it is for `authority`: a name or address, and perhaps a port.
    pub fn know(&self, authority: &str) -> bool {
        // Of what is no authority at all nobody says for whom it is.
        let Ok(authority) = authority.parse::<Authority>() else { return false };
        let port = authority.as_str().strip_prefix(authority.host());
        let is_port = |rest: &str| rest.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
        // Neither credentials before it nor anything but a port behind it.
        if !port.is_some_and(|rest| rest.is_empty() || is_port(rest)) {
            return false;
        }
        let host = authority.host().to_ascii_lowercase();
        // A dot at the end says only that the name is whole.
        let host = host.strip_suffix('.').unwrap_or(&host);
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if address.parse::<IpAddr>().is_ok() || host == "localhost" {
            return true;
        }
        match self {
            Hosts::None => false,
            Hosts::Any => true,
            Hosts::These(names) => names.iter().any(|name| match name.strip_prefix('.') {
                Some(_) => host.ends_with(name.as_str()),
                None => host == name,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_known_and_other_names_by_the_list() {
        let these = |names: &[&str]| Hosts::of(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let none = these(&[]);
        for known in
            ["127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "10.1.2.3", "localhost", "LOCALHOST:1", "localhost."]
        {
            assert!(none.know(known), "{known}");
        }
        let strangers = [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example@127.0.0.1",
            "127.0.0.1@evil.example",
            "forebay",
            "",
            ":8080",
            "::1",
            "[::1].evil.example",
            "127.0.0.1, evil.example",
            "localhost/x",
        ];
        for stranger in strangers {
            assert!(!none.know(stranger), "{stranger}");
            assert!(!these(&["llm.example.org"]).know(stranger), "{stranger}");
        }
        let listed = these(&["LLM.example.org", ".svc.cluster.local"]);
        for known in ["llm.example.org", "LLM.EXAMPLE.ORG:443", "forebay.default.svc.cluster.local", "10.0.0.1"] {
            assert!(listed.know(known), "{known}");
        }
        for stranger in ["x.llm.example.org", "example.org", "svc.cluster.local", "evilsvc.cluster.local"] {
            assert!(!listed.know(stranger), "{stranger}");
        }
        assert!(these(&["*"]).know("evil.example"));
    }
}
