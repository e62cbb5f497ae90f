//! What is wrong at the moment. The nemesis sets it, the log, the store and the networks look at it.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// Chances are in percent of single operations.
#[derive(Clone, Default, Debug)]
pub(crate) struct Faults {
    pub(crate) log: LogFaults,
    pub(crate) store: StoreFaults,
    /// Of requests between clients and proxies: connections that break before or after the request arrived.
    pub(crate) connections_break: f64,
    /// Answers are this slow, in milliseconds.
    pub(crate) network_ms: u64,
}

#[derive(Clone, Default, Debug)]
pub(crate) struct LogFaults {
    /// Its partition has no leader.
    pub(crate) is_offline: bool,
    pub(crate) answer_lost: f64,
    pub(crate) dropped: f64,
    /// Lands up to half a minute later, whoever waits for it.
    pub(crate) late: f64,
    /// These proxies are told nothing new.
    pub(crate) deaf: BTreeSet<usize>,
    /// Asked for its end, it tells an old one.
    pub(crate) stale_ends: f64,
}

#[derive(Clone, Default, Debug)]
pub(crate) struct StoreFaults {
    /// 503 before anything was done.
    pub(crate) refused: f64,
    /// 500 after it was done.
    pub(crate) done_not_told: f64,
    /// A PUT that lands up to a minute later.
    pub(crate) late: f64,
    /// No answer at all.
    pub(crate) stuck: f64,
    /// So many times slower.
    pub(crate) slow: u32,
    /// A GET with a wrong byte.
    pub(crate) wrong_byte: f64,
}

#[derive(Default)]
pub(crate) struct Present(Mutex<Faults>);

impl Present {
    pub(crate) fn now(&self) -> Faults {
        self.0.lock().clone()
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&Faults) -> T) -> T {
        look(&self.0.lock())
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.0.lock());
    }

    pub(crate) fn heal(&self) {
        *self.0.lock() = Faults::default();
    }
}
