//! Which adapters are in use: what routers that keep adapters where they are warm want to know.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Every adapter, by its place in the configuration; unset where there are none. Shared by all loops.
pub(super) type Adapters = Arc<OnceLock<Vec<Arc<Adapter>>>>;

/// Its live sequences, of all loops.
#[derive(Debug, Default)]
pub(super) struct Adapter {
    name: String,
    waiting: AtomicUsize,
    running: AtomicUsize,
}

impl Adapter {
    pub fn named(name: &str) -> Arc<Adapter> {
        Arc::new(Adapter { name: name.to_owned(), ..Adapter::default() })
    }

    fn count(&self, seated: bool) -> &AtomicUsize {
        if seated { &self.running } else { &self.waiting }
    }
}

/// A sequence counted with its adapter, until it is dropped.
#[derive(Debug)]
pub struct AdapterUse {
    adapter: Arc<Adapter>,
    seated: bool,
}

impl AdapterUse {
    /// A sequence that waits.
    pub(super) fn waiting(adapter: Arc<Adapter>) -> AdapterUse {
        adapter.waiting.fetch_add(1, Ordering::Relaxed);
        AdapterUse { adapter, seated: false }
    }

    /// It has its seat.
    pub fn seated(&mut self) {
        if !std::mem::replace(&mut self.seated, true) {
            self.adapter.running.fetch_add(1, Ordering::Relaxed);
            self.adapter.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for AdapterUse {
    fn drop(&mut self) {
        self.adapter.count(self.seated).fetch_sub(1, Ordering::Relaxed);
    }
}

/// Names of adapters with running sequences, and of those with waiting ones, as vLLM lists them.
pub(super) fn in_use(adapters: &[Arc<Adapter>]) -> [String; 2] {
    [true, false].map(|seated| {
        let used = adapters.iter().filter(|adapter| adapter.count(seated).load(Ordering::Relaxed) > 0);
        used.map(|adapter| adapter.name.as_str()).collect::<Vec<_>>().join(",")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_is_listed_while_it_has_a_sequence() {
        let adapters = ["tales", "poems"].map(Adapter::named);
        let lists = || in_use(&adapters);
        let mut tale = AdapterUse::waiting(adapters[0].clone());
        let poem = AdapterUse::waiting(adapters[1].clone());
        assert_eq!(lists(), ["", "tales,poems"]);
        tale.seated();
        tale.seated();
        assert_eq!(lists(), ["tales", "poems"]);
        drop(poem);
        let second = AdapterUse::waiting(adapters[0].clone());
        assert_eq!(lists(), ["tales", "tales"]);
        drop((tale, second));
        assert_eq!(lists(), ["", ""]);
    }
}
