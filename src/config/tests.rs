//! Precedence, provenance, and errors that name the key, the place and what is allowed.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use super::load::load;
use super::origin::Origin;
use super::table::{env_name, flags, table};
use super::*;
use forebay_core::request::Priority;

fn yaml(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::with_suffix(".yaml").expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

fn load_all(file: Option<&str>, variables: &[(&str, &str)], args: &[&str]) -> Result<Loaded, ConfigError> {
    let file = file.map(yaml);
    let flags = cli::parse_from(args).expect("flags that clap knows").flags;
    load(file.as_ref().map(|file| file.path()), env(variables), &flags)
}

fn refused(file: Option<&str>, variables: &[(&str, &str)], args: &[&str]) -> String {
    load_all(file, variables, args).expect_err("it must be refused").to_string()
}

#[test]
fn flags_go_before_environment_before_file_before_defaults() {
    let file = Some("server:\n  port: 1\n");
    let variable = [("FOREBAY__SERVER__PORT", "2")];
    let port = |file, variables: &[(&str, &str)], args: &[&str]| {
        load_all(file, variables, args).expect("valid").config.server.port
    };
    assert_eq!(port(None, &[], &[]), 8080);
    assert_eq!(port(file, &[], &[]), 1);
    assert_eq!(port(file, &variable, &[]), 2);
    assert_eq!(port(file, &variable, &["--port", "3"]), 3);
    assert_eq!(port(file, &variable, &["serve", "--port", "3"]), 3);
}

#[test]
fn every_value_says_where_it_came_from() {
    let file = Some("kv_cache:\n  block_size: 16\nmodel:\n  served_names: [a, b]\n");
    let loaded = load_all(file, &[("FOREBAY__ENGINE__THREADS", "2")], &["--port", "3"]).expect("valid");
    let text = loaded.describe();
    let line = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{key} = ")));
        line.unwrap_or_else(|| panic!("no {key} in\n{text}")).to_owned()
    };
    assert_eq!(line("server.port"), "server.port = 3  # flag --port");
    assert_eq!(line("engine.threads"), "engine.threads = 2  # environment FOREBAY__ENGINE__THREADS");
    assert!(line("kv_cache.block_size").starts_with("kv_cache.block_size = 16  # file /"));
    assert_eq!(line("server.host"), "server.host = 127.0.0.1  # default");
    assert_eq!(loaded.config.model.served_names, ["a", "b"]);
}

#[test]
fn unknown_keys_are_errors_wherever_they_stand() {
    let message = refused(Some("server:\n  prot: 1\n"), &[], &[]);
    assert!(message.contains("server.prot") && message.contains("did you mean server.port?"), "{message}");
    assert!(message.contains(".yaml"), "{message}");
    let message = refused(None, &[("FOREBAY__SERVER__PROT", "1")], &[]);
    assert!(message.contains("environment FOREBAY__SERVER__PROT"), "{message}");
    assert!(cli::parse_from(&["--prot", "1"]).is_err());
}

/// As paths they would overwrite each other, and which one won would depend on their order.
#[test]
fn a_variable_that_names_a_section_is_not_swallowed_by_one_that_names_its_key() {
    for odd in ["FOREBAY__SERVER", "FOREBAY__SERVER__PORT__X", "FOREBAY__", "FOREBAY__SERVER__PORT[0]"] {
        let message = refused(None, &[(odd, "x"), ("FOREBAY__SERVER__PORT", "1")], &[]);
        assert!(message.contains("unknown key") && message.contains(odd), "{message}");
    }
}

#[test]
fn log_levels_are_checked_because_a_wrong_one_would_silence_the_log() {
    let level = |text: &str| load_all(None, &[("FOREBAY__LOGGING__LEVEL", text)], &[]).map(|l| l.config.logging.level);
    for good in ["warn", "INFO", "off", "info,forebay=debug", "forebay_engine=trace"] {
        assert_eq!(level(good).expect("valid"), good);
    }
    for bad in ["loud", "", "info,forebay", "forebay=loud"] {
        assert!(level(bad).expect_err("refused").to_string().contains("logging.level"), "{bad}");
    }
}

#[test]
fn the_probe_follows_the_port_of_the_environment() {
    for (variable, port) in [(None, 8080), (Some("9000"), 9000), (Some("http"), 8080)] {
        assert_eq!(cli::probe_url(variable), format!("http://127.0.0.1:{port}/health/ready"));
    }
}

#[test]
fn bad_values_name_the_key_the_place_and_the_range() {
    for (key, value) in [
        ("server.port", "65536"),
        ("server.port", "-1"),
        ("server.port", "eighty"),
        ("server.host", "localhost"),
        ("server.read_timeout", "30"),
        ("server.read_timeout", "0s"),
        ("server.insecure", "yes please"),
        ("engine.max_num_seqs", "0"),
        ("engine.preemption", "oldest"),
        ("engine.max_model_len", "automatic"),
        ("kv_cache.memory", "-1"),
        ("kv_cache.memory", "NaN"),
        ("kv_cache.block_size", "0"),
        ("model.device", "cuda:x"),
        ("model.load_format", "gguf"),
        ("model.quantize", "q5_k"),
        ("logging.format", "xml"),
        ("workers.count", "65"),
        ("workers.upstreams", "http://a:1, host:8000"),
        ("tracing.otlp_endpoint", "grpc://a:4317"),
        ("workers.balancer", "random"),
        ("workers.latency_variance", "NaN"),
        ("health.check_interval", "5"),
        ("logging.level", "loud"),
    ] {
        let variable = env_name(key);
        let message = refused(None, &[(&variable, value)], &[]);
        assert!(message.contains(key) && message.contains(&variable) && message.contains("must be"), "{message}");
    }
}

#[test]
fn adapters_have_names_of_their_own() {
    let loaded = load_all(None, &[("FOREBAY__MODEL__LORA", "a=/x/y, b=z=w")], &[]).expect("two adapters");
    let config = loaded.config.model;
    assert_eq!(
        (config.adapters, config.options.adapters),
        (vec!["a".into(), "b".into()], vec!["/x/y".into(), "z=w".into()])
    );
    for wrong in ["a", "=x", "a=", "a=x,a=y"] {
        let message = refused(None, &[("FOREBAY__MODEL__LORA", wrong)], &[]);
        assert!(message.contains("model.lora") && message.contains("name=folder"), "{message}");
    }
}

#[test]
fn how_many_loops_there_are_follows_from_what_answers() {
    let count = |variables: &[(&str, &str)]| load_all(None, variables, &[]).map(|loaded| loaded.config.workers.count);
    let upstreams = ("FOREBAY__WORKERS__UPSTREAMS", "http://a:1/v1,http://b:2");
    assert_eq!(count(&[]).unwrap(), 1);
    assert_eq!(count(&[("FOREBAY__MODEL__PATH", "sim")]).unwrap(), 4);
    assert_eq!(count(&[upstreams]).unwrap(), 0, "a router");
    assert_eq!(count(&[upstreams, ("FOREBAY__MODEL__PATH", "x.gguf")]).unwrap(), 1);
    assert_eq!(count(&[upstreams, ("FOREBAY__WORKERS__COUNT", "2")]).unwrap(), 2);
    let nobody = count(&[("FOREBAY__WORKERS__COUNT", "0")]).unwrap_err().to_string();
    assert!(nobody.contains("workers.count"), "{nobody}");
    let loaded = load_all(None, &[upstreams], &[]).unwrap();
    assert_eq!(loaded.config.workers.upstreams, ["http://a:1", "http://b:2"]);
}

#[test]
fn other_servers_may_be_asked_over_tls() {
    let variables = [
        ("FOREBAY__WORKERS__UPSTREAMS", "https://a/v1,http://b:2"),
        ("FOREBAY__TRACING__OTLP_ENDPOINT", "https://collector:4318"),
    ];
    let config = load_all(None, &variables, &[]).unwrap().config;
    assert_eq!(config.workers.upstreams, ["https://a", "http://b:2"]);
    assert_eq!(config.tracing.endpoint.as_deref(), Some("https://collector:4318"));
}

#[test]
fn a_file_that_cannot_be_read_or_parsed_is_named() {
    let missing = load(Some(Path::new("/nowhere/forebay.yaml")), BTreeMap::new(), &[]);
    assert!(missing.expect_err("missing").to_string().contains("/nowhere/forebay.yaml"));
    let message = refused(Some("server: [1, {\n"), &[], &[]);
    assert!(message.contains(".yaml"), "{message}");
}

#[test]
fn only_loopback_is_bound_without_saying_so() {
    for host in ["0.0.0.0", "192.168.1.5", "::"] {
        assert!(matches!(load_all(None, &[], &["--host", host]), Err(ConfigError::OpenToOthers { .. })), "{host}");
        assert!(load_all(None, &[], &["--host", host, "--insecure"]).is_ok());
        assert!(load_all(None, &[], &["--host", host, "--require-keys"]).is_ok());
    }
    assert!(load_all(None, &[], &["--host", "::1"]).is_ok());
}

#[test]
fn origins_are_written_as_browsers_write_them() {
    let origins =
        |text: &str| load_all(None, &[("FOREBAY__SERVER__CORS_ORIGINS", text)], &[]).map(|l| l.config.server.origins);
    assert_eq!(origins("").unwrap(), None);
    assert_eq!(origins("*").unwrap(), Some(vec!["*".to_owned()]));
    assert_eq!(origins("https://a.example, http://localhost:3000").unwrap().unwrap().len(), 2);
    for odd in ["a.example", "https://a.example/", "https://A.example", "null", "*,https://a.example", "https://u@a"] {
        assert!(origins(odd).unwrap_err().to_string().contains("server.cors_origins"), "{odd}");
    }
}

#[test]
fn hosts_are_names_without_ports() {
    let hosts = |text: &str| load_all(None, &[("FOREBAY__SERVER__HOSTS", text)], &[]).map(|l| l.config.server.hosts);
    assert_eq!(hosts("").unwrap(), Vec::<String>::new());
    assert_eq!(hosts("*").unwrap(), ["*"]);
    assert_eq!(hosts("llm.example.org, .svc.cluster.local").unwrap().len(), 2);
    for odd in ["a.example:80", "http://a.example", "a/b", "*,a.example", "*.example", "a.example.", ".", "u@a"] {
        assert!(hosts(odd).unwrap_err().to_string().contains("server.hosts"), "{odd}");
    }
}

#[test]
fn listeners_are_closed_to_others_and_certificates_are_whole() {
    let admin = |address: &str, more: &[&str]| load_all(None, &[], &[&["--admin-listen", address], more].concat());
    assert!(matches!(admin("0.0.0.0:1", &[]), Err(ConfigError::OpenToOthers { .. })));
    assert!(admin("0.0.0.0:1", &["--require-keys"]).is_ok() && admin("127.0.0.1:1", &[]).is_ok());
    assert!(admin("here", &[]).unwrap_err().to_string().contains("server.admin_listen"));
    assert!(refused(None, &[], &["--tls-cert", "x"]).contains("server.tls_cert"));
}

#[test]
fn keys_need_a_store_that_is_kept_and_one_secret() {
    let message = refused(None, &[], &["--require-keys", "--store", "memory"]);
    assert!(message.contains("keys.required") && message.contains("store.url"), "{message}");
    let [secret, file] = [("FOREBAY__KEYS__SECRET", "0123456789abcdef"), ("FOREBAY__KEYS__SECRET_FILE", "/x")];
    let message = refused(None, &[secret, file], &[]);
    assert!(message.contains("keys.secret"), "{message}");
    let shown = load_all(None, &[secret], &[]).expect("valid").describe();
    assert!(shown.contains("keys.secret = ***") && !shown.contains("0123456789abcdef"), "{shown}");
}

/// config.yaml documents every key with its default.
#[test]
fn the_shipped_file_documents_every_key_with_its_default() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config.yaml");
    let text = std::fs::read_to_string(&path).expect("config.yaml");
    let loaded = load(Some(&path), BTreeMap::new(), &[]).expect("the shipped file is valid");
    for row in table() {
        let entry = &loaded.merged[row.key];
        assert_eq!(entry.text, row.default_text(), "{}", row.key);
        let set = matches!(entry.origin, Origin::File(..));
        match row.default_text().is_empty() {
            true => assert!(text.contains(&format!("{}:", row.leaf())), "{}", row.key),
            false => assert!(set, "{} is missing", row.key),
        }
    }
}

#[test]
fn help_shows_each_flags_default_and_variable() {
    let help = cli::command().render_long_help().to_string();
    for (flag, row) in flags() {
        assert!(help.contains(&format!("--{flag}")) && help.contains(&env_name(row.key)), "{flag}");
    }
    assert!(help.contains("[default: 8080"), "{help}");
}

#[test]
fn proxies_are_networks_or_addresses_and_objectives_have_a_priority() {
    let server = |name: &str, value: &str| load_all(None, &[(name, value)], &[]).map(|loaded| loaded.config.server);
    let trusted = |value: &str| server("FOREBAY__SERVER__TRUSTED_PROXIES", value).map(|server| server.trusted_proxies);
    let texts = |value: &str| trusted(value).expect("valid").iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts("10.0.0.0/8, 192.168.1.7, fd00::/8"), ["10.0.0.0/8", "192.168.1.7/32", "fd00::/8"]);
    assert_eq!(texts(""), [""; 0], "nobody");
    assert_eq!(load_all(None, &[], &[]).expect("valid").config.server.trusted_proxies.len(), 2, "this machine");
    for bad in ["10.0.0.0/33", "gateway", "10.0.0.0/8,x"] {
        assert!(trusted(bad).expect_err(bad).to_string().contains("server.trusted_proxies"));
    }
    let objectives = |value: &str| server("FOREBAY__SERVER__OBJECTIVES", value).map(|server| server.objectives);
    let expected = [("chat".to_owned(), Priority::High), ("nightly".to_owned(), Priority::Batch)];
    assert_eq!(objectives("chat=high, nightly=batch").expect("valid"), expected);
    for bad in ["chat", "chat=soon", "=high", "chat=high,chat=low"] {
        assert!(objectives(bad).expect_err(bad).to_string().contains("server.objectives"));
    }
}

#[test]
#[cfg(feature = "kv-events")]
fn kv_events_need_an_address_and_a_cache() {
    let told = |args: &[&str], variables: &[(&str, &str)]| load_all(None, variables, args).map(|l| l.config.kv_events);
    assert_eq!(told(&[], &[]).expect("valid").endpoint, None);
    let told_to = told(&["--kv-events", "tcp://*:5557"], &[]).expect("valid");
    let expected = (Some("tcp://*:5557".to_owned()), None, 1024);
    assert_eq!((told_to.endpoint, told_to.replay_endpoint, told_to.queue_size), expected);
    for bad in ["5557", "tcp://5557", "tcp://*", "ipc:///tmp/x", "tcp://:5557", "tcp://*:65536"] {
        assert!(told(&["--kv-events", bad], &[]).expect_err(bad).to_string().contains("kv_events.endpoint"));
    }
    let message = told(&["--kv-events-replay", "tcp://*:5558"], &[]).expect_err("a replay of nothing").to_string();
    assert!(message.contains("kv_events.replay_endpoint"), "{message}");
    let off = [("FOREBAY__KV_CACHE__PREFIX_CACHING", "false")];
    assert!(told(&["--kv-events", "tcp://*:5557"], &off).is_err());
}

#[test]
#[cfg(not(feature = "kv-events"))]
fn kv_events_need_their_feature() {
    let message = refused(None, &[], &["--kv-events", "tcp://*:5557"]);
    assert!(message.contains("kv_events.endpoint") && message.contains("feature kv-events"), "{message}");
}
