//! The seam to whoever can tell whether the applied state is behind the metadata log.

use futures::future::BoxFuture;

/// Makes sure that an answer is not given from the past.
pub trait Freshness: Send + Sync {
    /// Returns once everything is applied that was in the log when this was called.
    fn barrier(&self) -> BoxFuture<'_, Result<(), NotFresh>>;

    /// As `barrier`, but proved: an old leader of the log cannot answer for the new one (R11). Dearer.
    fn proof(&self) -> BoxFuture<'_, Result<(), NotFresh>> {
        self.barrier()
    }
}

/// The barrier was not passed in time: the applied state may be behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the metadata log could not be read up to its end")]
pub struct NotFresh;
