//! Counts of what the coordination did. Plain atomics: whoever owns the metrics reads them.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::diskless_coordinator::outcome::Refusal;

#[derive(Default, Debug)]
pub struct CoordinationStats {
    /// Records handed to the log, repeats included.
    pub appended: AtomicU64,
    /// Appends that did not visibly succeed.
    pub append_failures: AtomicU64,
    /// Times that a new client and a new epoch were needed.
    pub reopened: AtomicU64,
    /// Records applied, of all proxies.
    pub applied: AtomicU64,
    /// Wall time minus log time at the last applied record, in milliseconds.
    pub apply_lag_ms: AtomicI64,
    /// Records whose proposer's clock was so far behind log time that it held it back (R2): some clock is wrong.
    pub clock_cut_offs: AtomicU64,
    refused: [AtomicU64; Refusal::KINDS.len()],
}

impl CoordinationStats {
    pub(super) fn add_refusal(&self, refusal: &Refusal) {
        self.refused[refusal.kind()].fetch_add(1, Ordering::Relaxed);
    }

    /// Refused commands of all proxies, by kind.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Refusal::KINDS.iter().zip(&self.refused).map(|(kind, count)| (*kind, count.load(Ordering::Relaxed)))
    }
}
