//! What the doctor looks at, one function each.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use super::check::{Check, Verdict};
use crate::app::threads::compute_threads;
use crate::app::{inspect, memory, source};
use crate::config::{Config, Loaded};
use forebay_model::{Isa, Source};
use forebay_store::{Examined, Location, SchemaState, StoreError};

/// In the order in which a start would meet them.
pub fn all(loaded: &Loaded, mistake: Option<String>) -> Vec<Check> {
    let config = &loaded.config;
    vec![
        configuration(loaded, mistake),
        port(config),
        store(config),
        simd(),
        device(config),
        threads(config),
        memory(),
        files(config),
        model(config),
    ]
}

fn configuration(loaded: &Loaded, mistake: Option<String>) -> Check {
    const NAME: &str = "config";
    if let Some(mistake) = mistake {
        return Check::broken(NAME, mistake, "mend it; what follows is about the defaults");
    }
    match loaded.changed_keys().len() {
        0 => Check::fine(NAME, "defaults"),
        count => Check::fine(NAME, format!("{count} keys differ from their defaults; `forebay config` lists all")),
    }
}

fn port(config: &Config) -> Check {
    const NAME: &str = "port";
    let address = SocketAddr::new(config.server.host, config.server.port);
    match TcpListener::bind(address) {
        Ok(_) if address.port() == 0 => Check::fine(NAME, format!("a free one of {}", address.ip())),
        Ok(_) => Check::fine(NAME, format!("{address} is free")),
        Err(error) => {
            let advice = match error.kind() {
                std::io::ErrorKind::AddrInUse => "end who uses it, or take another with --port",
                std::io::ErrorKind::PermissionDenied => "ports below 1024 need a privilege; take another with --port",
                _ => "give an address of this machine with --host",
            };
            Check::broken(NAME, format!("cannot listen on {address}: {error}"), advice)
        }
    }
}

fn store(config: &Config) -> Check {
    const NAME: &str = "store";
    let location = &config.store.location;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let examined = match runtime {
        Ok(runtime) => runtime.block_on(forebay_store::examine(&config.store)),
        Err(error) => return Check::broken(NAME, error.to_string(), "give the process more threads and descriptors"),
    };
    match examined {
        Ok(Examined::Memory) => {
            Check::warning(NAME, "memory", "files and batches end with the process; --store sqlite:PATH keeps them")
        }
        Ok(Examined::Missing) => Check::fine(NAME, format!("{location} will be made by the first start")),
        Ok(Examined::There { newer, .. }) if newer > 0 => Check::broken(
            NAME,
            format!("{location} was migrated by a newer version, {newer} steps ahead"),
            "run that version, or name another store with --store",
        ),
        Ok(there) => match (there.steps(SchemaState::Different), there.steps(SchemaState::Pending)) {
            (different, _) if !different.is_empty() => Check::broken(
                NAME,
                format!("{location} was migrated by other steps than ours: {}", different.join(", ")),
                "run the version that made it, or name another store with --store",
            ),
            (_, pending) if pending.is_empty() => Check::fine(NAME, format!("{location}, schema up to date")),
            (_, pending) => Check::fine(NAME, format!("{location}; the next start migrates: {}", pending.join(", "))),
        },
        Err(error) => {
            let advice = match location {
                Location::Postgres(_) => "check host, user, password and database of store.url, and that it runs",
                Location::File(_) | Location::Memory => "name a place that can be written with --store, or `memory`",
            };
            let found = match error {
                StoreError::Open { location, message } => format!("{location}: {message}"),
                other => other.to_string(),
            };
            Check::broken(NAME, found, advice)
        }
    }
}

fn simd() -> Check {
    const NAME: &str = "simd";
    let all = || Isa::available().iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", ");
    match Isa::check() {
        Ok(isa) if isa == Isa::Scalar && cfg!(target_arch = "x86_64") => {
            Check::warning(NAME, "scalar", "this is many times slower; a processor with AVX2 is wanted")
        }
        Ok(isa) => Check::fine(NAME, format!("{} of {}", isa.name(), all())),
        Err(error) => Check::broken(NAME, error.to_string(), "unset FOREBAY_SIMD, or name one that is there"),
    }
}

fn device(config: &Config) -> Check {
    const NAME: &str = "device";
    match forebay_model::device_name(config.model.options.device) {
        Ok(name) => Check::fine(NAME, name),
        Err(error) => Check::broken(NAME, error.to_string(), "take --device cpu, or a build with the device's feature"),
    }
}

fn threads(config: &Config) -> Check {
    const NAME: &str = "threads";
    let allowed = std::thread::available_parallelism().map_or(1, |count| count.get());
    let (wanted, loops) = (compute_threads(config), config.workers.count);
    let found = format!("{wanted} for {loops} engine loops; {allowed} processors may be used");
    match wanted {
        _ if wanted > allowed => {
            Check::warning(NAME, found, "more threads than processors slow each other down; engine.threads: auto")
        }
        _ if loops > wanted => Check::warning(NAME, found, "fewer threads than loops; lower workers.count"),
        _ => Check::fine(NAME, found),
    }
}

fn memory() -> Check {
    const NAME: &str = "memory";
    let limit = match memory::container_limit() {
        Some(limit) => format!("the cgroup allows {}", inspect::Bytes(limit as u64)),
        None => "no cgroup limit".to_owned(),
    };
    match memory::available_bytes() {
        Some(free) if free < LITTLE => Check::warning(
            NAME,
            format!("{} free, {limit}", inspect::Bytes(free as u64)),
            "small models only; raise the container's limit, or take --quantize q4_k",
        ),
        Some(free) => Check::fine(NAME, format!("{} free, {limit}", inspect::Bytes(free as u64))),
        None => Check::warning(NAME, "this system does not say what is free", "set kv_cache.memory"),
    }
}

/// The embedded model needs less; others hardly begin here.
const LITTLE: usize = 512 << 20;

/// A connection is a descriptor, and so is a worker's.
fn files(config: &Config) -> Check {
    const NAME: &str = "files";
    let Some(limit) = open_files(Path::new("/proc/self/limits")) else {
        return Check::fine(NAME, "this system does not say how many may be open");
    };
    let wanted = config.server.max_connections as u64 + SPARE_FILES;
    let found = format!("{limit} may be open, {wanted} may be wanted");
    if limit >= wanted {
        return Check::fine(NAME, found);
    }
    Check::warning(NAME, found, "raise `ulimit -n` (LimitNOFILE= in a unit), or lower server.max_connections")
}

/// The store's, upstreams', the model's, and some.
const SPARE_FILES: u64 = 128;

fn open_files(limits: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(limits).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn model(config: &Config) -> Check {
    const NAME: &str = "model";
    let reference = &config.model.reference;
    if config.workers.count == 0 {
        let list = config.workers.upstreams.join(", ");
        return Check::fine(NAME, format!("none of its own; relayed to {list}"));
    }
    if config.model.is_simulated() {
        return Check::fine(NAME, "simulated");
    }
    let advice = "give a folder with config.json and safetensors, a .gguf file, or a hub id with --model";
    let source = match source::local(reference) {
        Ok(Some(source)) => source,
        Ok(None) => {
            return Check::fine(NAME, format!("{reference} is a hub id; the start downloads what is not cached"));
        }
        Err(error) => return Check::broken(NAME, error.to_string(), advice),
    };
    if let Source::Gguf(path) | Source::Folder(path) = &source
        && let Err(error) = std::fs::metadata(path)
    {
        return Check::broken(NAME, format!("{}: {error}", path.display()), advice);
    }
    match inspect::verdict(&source, config) {
        Ok((found, Some(true))) => Check::fine(NAME, found),
        Ok((found, Some(false))) => Check {
            verdict: Verdict::Broken,
            ..Check::warning(NAME, found, "free memory, quantise it, or take a smaller one")
        },
        Ok((found, None)) => Check::warning(NAME, found, "look at `forebay model inspect`"),
        Err(error) => Check::broken(NAME, error.to_string(), advice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max open files            1024                 524288               files     \n";
        std::fs::write(file.path(), text).unwrap();
        assert_eq!(open_files(file.path()), Some(1024));
        std::fs::write(file.path(), "Max open files            unlimited            unlimited            files\n")
            .unwrap();
        assert_eq!(open_files(file.path()), None);
        assert_eq!(open_files(Path::new("/nowhere")), None);
    }
}
