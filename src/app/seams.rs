//! Fits the coordination into the seams of the services.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use tokio::time::Instant;

use crate::coordination::{BarrierKind, Coordination, SubmitError};
use crate::diskless_coordinator::command::{Command, CommitSegment};
use crate::diskless_coordinator::outcome::Outcome;
use crate::fetch::{Freshness, NotFresh};
use crate::produce::{CommitError, CommitLog};
use crate::types::LogPosition;

/// Commits through the metadata log.
pub struct Commits {
    coordination: Arc<Coordination>,
}

impl Commits {
    pub fn new(coordination: Arc<Coordination>) -> Self {
        Self { coordination }
    }
}

impl CommitLog for Commits {
    fn position(&self) -> LogPosition {
        self.coordination.applied()
    }

    fn epoch(&self) -> LogPosition {
        self.coordination.epoch()
    }

    fn submit(&self, commit: CommitSegment) -> BoxFuture<'static, Result<Outcome, CommitError>> {
        let submitted = self.coordination.submit(Command::CommitSegment(commit));
        async move {
            submitted.await.map_err(|error| match error {
                SubmitError::NotAppended => CommitError::NotCommitted,
                SubmitError::Unknown => CommitError::Unknown,
                SubmitError::Fenced | SubmitError::Stopped => CommitError::Stopped,
            })
        }
        .boxed()
    }
}

/// How long a look-up may wait for the log: below the half minute after which clients give up on a request. They expect
/// of a broker that it knows its offsets, so not all of them ask again when told that they are not available.
const BARRIER_WAIT: Duration = Duration::from_secs(15);
/// How long a Fetch from an offset that we do not know may wait; consumers repeat those.
const PROOF_WAIT: Duration = Duration::from_secs(5);

/// Barriers on the metadata log: as configured for look-ups, a record of our own where an offset is said not to exist (R11).
pub struct LogFreshness {
    coordination: Arc<Coordination>,
    look_ups: BarrierKind,
}

impl LogFreshness {
    pub fn new(coordination: Arc<Coordination>, look_ups: BarrierKind) -> Self {
        Self { coordination, look_ups }
    }
}

impl Freshness for LogFreshness {
    fn barrier(&self) -> BoxFuture<'_, Result<(), NotFresh>> {
        let deadline = Instant::now() + BARRIER_WAIT;
        let passed = async move {
            match self.look_ups {
                BarrierKind::End => self.coordination.end_barrier(deadline).await,
                BarrierKind::Record => self.coordination.record_barrier(deadline).await,
            }
        };
        passed.map_ok(drop).map_err(|_| NotFresh).boxed()
    }

    fn proof(&self) -> BoxFuture<'_, Result<(), NotFresh>> {
        let deadline = Instant::now() + PROOF_WAIT;
        async move { self.coordination.record_barrier(deadline).await.map(drop).map_err(|_| NotFresh) }.boxed()
    }
}
