//! Carries the outcome of each batch back to the request that it came in.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::diskless_coordinator::outcome::{BatchOutcome, Placed};
use crate::types::ErrorCode;

/// What became of one batch.
pub type BatchResult = Result<Placed, Rejected>;

/// The batch was not accepted, or not as far as is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Rejected {
    pub code: ErrorCode,
    pub message: &'static str,
}

impl Rejected {
    /// Its segment could not be written: nothing was committed, so it can be sent again.
    pub(super) const NOT_WRITTEN: Self = Self {
        code: ErrorCode::NotEnoughReplicas,
        message: "the WAL segment could not be written to the object store",
    };
    /// The commit is certainly without effect.
    pub(super) const NOT_COMMITTED: Self =
        Self { code: ErrorCode::NotEnoughReplicas, message: "the batch could not be committed to the metadata log" };
    pub(super) const UNKNOWN: Self =
        Self { code: ErrorCode::RequestTimedOut, message: "the outcome of the commit is not known" };
    /// The client should find another proxy.
    pub(super) const STOPPED: Self =
        Self { code: ErrorCode::NotLeaderOrFollower, message: "this proxy is not serving diskless topics" };

    fn by_log(code: ErrorCode) -> Self {
        Self { code, message: "refused when the log was applied" }
    }
}

pub(super) fn result_of(outcome: BatchOutcome) -> BatchResult {
    match outcome {
        BatchOutcome::Accepted(placed) | BatchOutcome::Duplicate(placed) => Ok(placed),
        BatchOutcome::Rejected(code) => Err(Rejected::by_log(code)),
    }
}

/// The batches of one request that wait for their outcome.
struct Waiting {
    left: usize,
    results: Vec<BatchResult>,
    done: Option<oneshot::Sender<Vec<BatchResult>>>,
    /// The bytes of the request count as held until every batch has its outcome.
    _permit: OwnedSemaphorePermit,
}

/// The right and duty to answer one batch. One that is dropped answers "unknown", so no request waits for ever.
pub(super) struct Slot {
    waiting: Arc<Mutex<Waiting>>,
    index: usize,
    is_answered: bool,
}

/// A slot for each of `count` batches, and where the results arrive once all are answered.
pub(super) fn slots(count: usize, permit: OwnedSemaphorePermit) -> (Vec<Slot>, oneshot::Receiver<Vec<BatchResult>>) {
    let (done, results) = oneshot::channel();
    let waiting =
        Waiting { left: count, results: vec![Err(Rejected::UNKNOWN); count], done: Some(done), _permit: permit };
    let waiting = Arc::new(Mutex::new(waiting));
    let slots = (0..count).map(|index| Slot { waiting: Arc::clone(&waiting), index, is_answered: false }).collect();
    if count == 0 {
        finish(&mut waiting.lock());
    }
    (slots, results)
}

fn finish(waiting: &mut Waiting) {
    if let Some(done) = waiting.done.take() {
        // Where the connection is gone nobody listens.
        let _ = done.send(std::mem::take(&mut waiting.results));
    }
}

impl Slot {
    pub(super) fn answer(mut self, result: BatchResult) {
        self.set(result);
    }

    fn set(&mut self, result: BatchResult) {
        if std::mem::replace(&mut self.is_answered, true) {
            return;
        }
        let mut waiting = self.waiting.lock();
        if let Some(at) = waiting.results.get_mut(self.index) {
            *at = result;
        }
        waiting.left -= 1;
        if waiting.left == 0 {
            finish(&mut waiting);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.set(Err(Rejected::UNKNOWN));
    }
}
