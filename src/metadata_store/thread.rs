//! The handle of the store. One thread owns the state, the file and the right to publish; in a simulation it is
//! whoever calls.
//!
//! A write that fails ends the store: nothing of the group is shown, and the observer is told why.

use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::disk::{self, File, Memory, failed};
use super::rows::Loaded;
use super::writer::{DURABLE_EVERY, StoreObserver, Writer};
use super::{OpenError, StoreLocation};
use crate::diskless_coordinator::encoding::LogRecord;
use crate::diskless_coordinator::publish::Publisher;
use crate::diskless_coordinator::rules::agreement::Checkpoint;
use crate::diskless_coordinator::view::View;
use crate::types::{LogId, LogPosition};

/// Groups that may wait for the thread.
const QUEUE: usize = 16;

/// The store has stopped; the observer was told why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the metadata store has stopped")]
pub struct StoreStopped;

/// The handle. Closing or dropping it makes everything durable and ends the thread.
pub struct MetadataStore {
    runner: Runner,
    applied_at_open: LogPosition,
    checkpoint_at_open: Checkpoint,
    log_id: Option<LogId>,
}

enum Runner {
    Thread(StoreThread),
    /// `None` once it has stopped.
    Inline(Box<Mutex<Option<Writer>>>),
}

struct StoreThread {
    queue: Mutex<Option<std_mpsc::SyncSender<Group>>>,
    places: Arc<Semaphore>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Group {
    records: Vec<LogRecord>,
    _place: OwnedSemaphorePermit,
}

impl MetadataStore {
    /// Opens the file, or an empty one in its place if it is of another log than `log_id`, of another version, or
    /// damaged; shows what it holds in the view.
    pub fn open(
        location: &StoreLocation,
        log_id: Option<LogId>,
        view: Arc<View>,
        observer: Arc<dyn StoreObserver>,
    ) -> Result<Self, OpenError> {
        let (database, Loaded { state, segments }) = match location {
            StoreLocation::File(path) => disk::open(&File(path.clone()), log_id)?,
            StoreLocation::Memory => disk::open(&Memory, log_id)?,
            StoreLocation::Simulated(simulated) => disk::open(simulated.as_ref(), log_id)?,
        };
        let mut publisher = Publisher::new(view);
        publisher.publish_state(&state, segments.iter().map(Arc::as_ref));
        drop(segments);
        let applied_at_open = state.applied;
        let checkpoint_at_open = state.checkpoints.back().copied().unwrap_or(Checkpoint::NONE);
        let log_id = state.genesis.as_ref().map(|g| g.log_id);
        let writer = Writer { database, state, publisher, observer, durable_at: Instant::now(), is_durable: true };
        let runner = match location {
            StoreLocation::Simulated(_) => Runner::Inline(Box::new(Mutex::new(Some(writer)))),
            StoreLocation::File(_) | StoreLocation::Memory => Runner::Thread(StoreThread::start(writer)?),
        };
        Ok(Self { runner, applied_at_open, checkpoint_at_open, log_id })
    }

    /// The last record that was applied when the store was opened.
    pub fn applied_at_open(&self) -> LogPosition {
        self.applied_at_open
    }

    /// The last checkpoint up to there.
    pub fn checkpoint_at_open(&self) -> Checkpoint {
        self.checkpoint_at_open
    }

    /// The log whose records the store held when it was opened; `None` when it was empty.
    pub fn log_id(&self) -> Option<LogId> {
        self.log_id
    }

    /// Queues a group; waits while the queue is full.
    pub async fn apply(&self, records: Vec<LogRecord>) -> Result<(), StoreStopped> {
        match &self.runner {
            Runner::Thread(thread) => thread.apply(records).await,
            Runner::Inline(writer) => {
                let mut writer = writer.lock();
                let Some(running) = writer.as_mut() else { return Err(StoreStopped) };
                let Err(reason) = running.apply_or_say_why(&records) else { return Ok(()) };
                running.observer.failed(reason);
                *writer = None;
                Err(StoreStopped)
            }
        }
    }

    /// Applies what is queued, makes it durable and ends the thread.
    pub fn close(&self) {
        match &self.runner {
            Runner::Thread(thread) => thread.close(),
            Runner::Inline(writer) => {
                if let Some(mut running) = writer.lock().take() {
                    // What is not durable is replayed.
                    let _ = running.make_durable();
                }
            }
        }
    }
}

impl Drop for MetadataStore {
    fn drop(&mut self) {
        // What a simulated process had not closed when it died stays as it is.
        if let Runner::Thread(thread) = &self.runner {
            thread.close();
        }
    }
}

impl StoreThread {
    fn start(writer: Writer) -> Result<Self, OpenError> {
        let (queue, groups) = std_mpsc::sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("metadata-store".to_owned())
            .spawn(move || run(writer, &groups))
            .map_err(failed)?;
        Ok(Self {
            queue: Mutex::new(Some(queue)),
            places: Arc::new(Semaphore::new(QUEUE)),
            thread: Mutex::new(Some(thread)),
        })
    }

    async fn apply(&self, records: Vec<LogRecord>) -> Result<(), StoreStopped> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| StoreStopped)?;
        let queue = self.queue.lock().clone().ok_or(StoreStopped)?;
        // There is a place in the queue for every permit, so this never waits.
        queue.try_send(Group { records, _place: place }).map_err(|_| StoreStopped)
    }

    fn close(&self) {
        *self.queue.lock() = None;
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn run(mut writer: Writer, groups: &std_mpsc::Receiver<Group>) {
    loop {
        let done = match groups.recv_timeout(DURABLE_EVERY) {
            Ok(group) => writer.apply_or_say_why(&group.records),
            Err(std_mpsc::RecvTimeoutError::Timeout) => writer.make_durable(),
            Err(std_mpsc::RecvTimeoutError::Disconnected) => break,
        };
        if let Err(reason) = done {
            tracing::error!(reason, "the metadata store has stopped");
            writer.observer.failed(reason);
            return;
        }
    }
    if let Err(reason) = writer.make_durable() {
        tracing::warn!(reason, "the metadata store could not be closed cleanly; the next start replays more");
    }
}
