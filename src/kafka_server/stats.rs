//! What the doors count. Plain atomics; the admin server gives them names.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::RwLock;

/// Counters of all doors together.
#[derive(Default)]
pub struct DoorStats {
    pub connections: AtomicI64,
    pub connections_total: AtomicU64,
    pub connections_refused_total: AtomicU64,
    pub produce_refused_total: AtomicU64,
    topics: RwLock<std::collections::HashMap<String, Arc<TopicBytes>>>,
}

/// Bytes of one diskless topic through this proxy.
#[derive(Default)]
pub struct TopicBytes {
    pub produced_bytes: AtomicU64,
    pub produced_records: AtomicU64,
    pub fetched_bytes: AtomicU64,
}

/// Counts a connection for as long as it is held.
pub(super) struct Counted(Arc<DoorStats>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DoorStats {
    pub(super) fn connection_opened(self: &Arc<Self>) -> Counted {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.connections_total.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(self))
    }

    pub(super) fn connections_refused(&self) {
        self.connections_refused_total.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters of one topic.
    pub(super) fn topic(&self, name: &str) -> Arc<TopicBytes> {
        if let Some(found) = self.topics.read().get(name) {
            return Arc::clone(found);
        }
        Arc::clone(self.topics.write().entry(name.to_owned()).or_default())
    }

    /// All topics that were used, by name.
    pub fn topics(&self) -> Vec<(String, Arc<TopicBytes>)> {
        let mut all: Vec<_> = self.topics.read().iter().map(|(n, t)| (n.clone(), Arc::clone(t))).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}
