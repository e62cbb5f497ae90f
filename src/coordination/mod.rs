//! The shell around the diskless coordinator: commands go out to the metadata log, what the log says is applied
//! here, and outcomes come back to whoever asked.
//!
//! Commands of one proxy keep their call order through every failure of the log's client (R10). An outcome is handed
//! out only after its record was read back and applied. A fenced coordination stops for good. Never decides anything
//! about a batch or a topic: that is the coordinator's part.

mod agreement;
mod barriers;
mod clock_skew;
mod shared;
mod start;
mod stats;
mod submissions;
mod supervisor;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::WallClock;
use crate::diskless_coordinator::command::Command;
use crate::diskless_coordinator::rules::agreement::Checkpoint;
use crate::diskless_coordinator::view::View;
use crate::metadata_log::LogError;
use crate::metadata_store::{MetadataStore, OpenError, StoreLocation};
use crate::types::{Endpoint, LogId, LogPosition, ProxyId, Rack, TopicId};

pub use barriers::BarrierError;
use barriers::Barriers;
use shared::Shared;
pub use stats::CoordinationStats;
pub use submissions::{SubmitError, Submitted};

/// Between two queries for the log's end, where the first one failed.
const BARRIER_PAUSE: Duration = Duration::from_millis(100);

/// Who this proxy is, and where it keeps what it applied.
#[derive(Clone, Debug)]
pub struct Settings {
    pub proxy: ProxyId,
    pub zone: Rack,
    pub endpoint: Endpoint,
    pub store: StoreLocation,
    /// What the log must belong to; written into it when it is empty.
    pub upstream_cluster_id: String,
    pub metadata_topic_id: TopicId,
    pub timing: Timing,
    pub clock: WallClock,
    /// What is random about this process.
    pub identity: Identity,
}

/// Two random numbers; simulations choose them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Tells this incarnation of the proxy from others (R10).
    pub nonce: [u8; 16],
    /// The id of the log, if this proxy begins it.
    pub log_id: LogId,
}

impl Identity {
    pub fn random() -> Self {
        Self { nonce: rand::random(), log_id: LogId(rand::random()) }
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub heartbeat: Duration,
    /// An append or `Open` that was not read back in this time is tried again with a new client.
    pub append_deadline: Duration,
    /// A tail that has shown nothing for this long is replaced. This proxy's heartbeats alone come more often.
    pub tail_deadline: Duration,
    /// A failed `Open` is tried again after this time.
    pub open_retry: Duration,
    /// A command whose outcome is not known after this time is given up as unknown.
    pub submit_deadline: Duration,
    /// `Close` is waited for this long at shutdown.
    pub close_deadline: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(3),
            append_deadline: Duration::from_secs(10),
            tail_deadline: Duration::from_secs(10),
            open_retry: Duration::from_secs(1),
            submit_deadline: Duration::from_secs(30),
            close_deadline: Duration::from_secs(3),
        }
    }
}

/// What the coordination can do at present.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    Starting,
    Serving,
    /// Another process took this proxy id over. This one must end.
    Fenced(String),
    /// The log or the store cannot be used any more.
    Failed(String),
    Stopped,
}

/// What proves to a look-up of offsets that nothing newer was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BarrierKind {
    /// The end that the log's leader tells. A leader that was deposed and does not know it yet may tell an old one.
    End,
    /// A record of our own, read back.
    Record,
}

/// Why the coordination did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(
        "the metadata log ends at {end}, but this proxy has applied it up to {applied}: the log lost records, or is another one. If it was replaced on purpose, delete the metadata store"
    )]
    LogLost { applied: LogPosition, end: LogPosition },
    #[error("the metadata log starts at {start}, but this proxy has applied it only up to {applied}")]
    LogTrimmed { applied: LogPosition, start: LogPosition },
    #[error("the metadata log belongs to the Kafka cluster {found}, but the upstream cluster is {expected}")]
    ClusterId { expected: String, found: String },
    #[error("{0}")]
    Fenced(String),
    #[error("{0}")]
    Failed(String),
    #[error("told to stop")]
    Stopped,
}

/// A proxy's part in the common order.
pub struct Coordination {
    shared: Arc<Shared>,
    store: Arc<MetadataStore>,
    barriers: Barriers,
    log_id: LogId,
    stop: CancellationToken,
}

impl Coordination {
    pub fn view(&self) -> &Arc<View> {
        &self.shared.view
    }

    pub fn log_id(&self) -> LogId {
        self.log_id
    }

    /// The epoch of this incarnation; it grows when the log's client had to be renewed.
    pub fn epoch(&self) -> LogPosition {
        self.shared.epoch()
    }

    /// The last record that readers can see the effect of.
    pub fn applied(&self) -> LogPosition {
        self.shared.applied_now()
    }

    /// The last checkpoint that is applied here: equal on all proxies at the same position (R8).
    pub fn checkpoint(&self) -> Checkpoint {
        self.shared.checkpoint()
    }

    pub fn status(&self) -> watch::Receiver<Status> {
        self.shared.status.subscribe()
    }

    pub fn stats(&self) -> &Arc<CoordinationStats> {
        &self.shared.stats
    }

    /// Queues a command before it returns, so that calls keep their order. Waits for nothing.
    pub fn submit(&self, command: Command) -> Submitted {
        self.shared.submit(command)
    }

    /// Waits until everything that was in the log when this was called is applied here. Asks again while the log does
    /// not answer (its partition may have no leader just now), until the deadline.
    pub async fn end_barrier(&self, deadline: Instant) -> Result<LogPosition, BarrierError> {
        loop {
            let passed = self.end_barrier_once(deadline).await;
            let goes_on = *self.shared.status.borrow() == Status::Serving;
            if passed.is_ok() || !goes_on || Instant::now() + BARRIER_PAUSE >= deadline {
                return passed;
            }
            tokio::time::sleep(BARRIER_PAUSE).await;
        }
    }

    async fn end_barrier_once(&self, deadline: Instant) -> Result<LogPosition, BarrierError> {
        let end = self.barriers.end(deadline).await?;
        self.shared.wait_applied(end, deadline).await?;
        Ok(end)
    }

    /// As [`Self::end_barrier`], proved by a record of our own (R11).
    pub async fn record_barrier(&self, deadline: Instant) -> Result<LogPosition, BarrierError> {
        self.barriers.record(deadline).await
    }

    /// Says goodbye to the other proxies, and makes what was applied durable. Call it before tasks are stopped.
    pub async fn close(&self) {
        if *self.shared.status.borrow() == Status::Serving {
            let goodbye = self.shared.submit(Command::Close);
            let _ = tokio::time::timeout(self.shared.settings.timing.close_deadline, goodbye).await;
        }
        self.shared.stop(Status::Stopped);
        self.stop.cancel();
        self.store.close();
    }
}

#[cfg(test)]
mod tests;
