//! The seam to whoever appends commands to the metadata log and applies them.

use futures::future::BoxFuture;

use crate::diskless_coordinator::command::CommitSegment;
use crate::diskless_coordinator::outcome::Outcome;
use crate::types::LogPosition;

/// Puts commits into the one order.
pub trait CommitLog: Send + Sync {
    /// The last position that is applied here.
    fn position(&self) -> LogPosition;

    /// The position of the `Open` that began this proxy's incarnation.
    fn epoch(&self) -> LogPosition;

    /// Appends a commit and gives its outcome once it was applied here. Commits take their order in the log from the
    /// order of these calls, not from when the futures are polled.
    fn submit(&self, commit: CommitSegment) -> BoxFuture<'static, Result<Outcome, CommitError>>;
}

/// A commit that has no outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommitError {
    /// It is not in the log and never will be.
    #[error("not appended to the metadata log")]
    NotCommitted,
    /// It may be in the log, now or later.
    #[error("the outcome of the commit is unknown")]
    Unknown,
    /// This proxy no longer takes part in the log.
    #[error("this proxy has stopped serving diskless topics")]
    Stopped,
}
