//! Barriers: proof that what is applied here is not behind what the log had (R11).
//!
//! Rounds, one at a time of each kind: a round serves all who came before it began, and none who came after.
//! So a thousand waiters cost one query, or one record.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::shared::Shared;
use crate::diskless_coordinator::command::Command;
use crate::diskless_coordinator::outcome::Outcome;
use crate::tasks::Tasks;
use crate::types::LogPosition;

/// Waiters of one round.
const WAITERS: usize = 4_096;
/// A round that takes longer fails, so that later waiters get one of their own.
const ROUND: Duration = Duration::from_secs(5);

/// Nothing may be said about the end of a partition now.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BarrierError {
    #[error("the barrier was not passed: {0}")]
    NotPassed(String),
}

type Passed = Result<LogPosition, BarrierError>;
type Waiter = oneshot::Sender<Passed>;

pub(super) struct Barriers {
    end: mpsc::Sender<Waiter>,
    record: mpsc::Sender<Waiter>,
}

impl Barriers {
    pub(super) fn start(shared: &Arc<Shared>, tasks: &Tasks, stop: &CancellationToken) -> Self {
        let round = Arc::clone(shared);
        let end = serve(tasks, stop, "end-barrier", move || end_round(Arc::clone(&round)).boxed());
        let round = Arc::clone(shared);
        let record = serve(tasks, stop, "record-barrier", move || record_round(Arc::clone(&round)).boxed());
        Self { end, record }
    }

    /// The last position that the log had at some moment after the call.
    pub(super) async fn end(&self, deadline: Instant) -> Passed {
        join(&self.end, deadline).await
    }

    /// The position of a record that was appended after the call and is applied.
    pub(super) async fn record(&self, deadline: Instant) -> Passed {
        join(&self.record, deadline).await
    }
}

fn serve(
    tasks: &Tasks,
    stop: &CancellationToken,
    name: &'static str,
    round: impl Fn() -> BoxFuture<'static, Passed> + Send + Sync + 'static,
) -> mpsc::Sender<Waiter> {
    let (sender, mut waiting) = mpsc::channel(WAITERS);
    let stop = stop.clone();
    tasks.spawn(name, async move {
        let rounds = async {
            let mut served: Vec<Waiter> = Vec::new();
            while waiting.recv_many(&mut served, WAITERS).await > 0 {
                let passed = tokio::time::timeout(ROUND, round()).await;
                let passed = passed.unwrap_or_else(|_| Err(BarrierError::NotPassed("the log is slow".to_owned())));
                for waiter in served.drain(..) {
                    let _ = waiter.send(passed.clone());
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = rounds => {}
        }
    });
    sender
}

async fn join(barrier: &mpsc::Sender<Waiter>, deadline: Instant) -> Passed {
    let (reply, passed) = oneshot::channel();
    let stopped = || BarrierError::NotPassed("the coordination has stopped".to_owned());
    let wait = async {
        barrier.send(reply).await.map_err(|_| stopped())?;
        passed.await.map_err(|_| stopped())?
    };
    let late = |_| Err(BarrierError::NotPassed("the deadline passed".to_owned()));
    tokio::time::timeout_at(deadline, wait).await.unwrap_or_else(late)
}

async fn end_round(shared: Arc<Shared>) -> Passed {
    let end = shared.log.end().await.map_err(|error| BarrierError::NotPassed(error.to_string()))?;
    Ok(LogPosition(end.0 - 1))
}

async fn record_round(shared: Arc<Shared>) -> Passed {
    match shared.submit(Command::Barrier).await {
        // The record is applied, so what is applied now is not before it.
        Ok(Outcome::Done) => Ok(shared.applied_now()),
        Ok(other) => Err(BarrierError::NotPassed(format!("{other:?}"))),
        Err(error) => Err(BarrierError::NotPassed(error.to_string())),
    }
}
