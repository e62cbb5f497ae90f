//! One thread owns the state, the file and the right to publish: it applies groups of records, writes what they
//! changed in one transaction, shows it to readers, and hands the answers back, in this order.
//!
//! A write that fails ends the thread: nothing of the group is shown, and the observer is told why.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redb::{Database, DatabaseError, Durability};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::rows::{self, Changes, LoadError, Loaded};
use super::{OpenError, StoreLocation};
use crate::diskless_coordinator::apply::{Applied, apply};
use crate::diskless_coordinator::encoding::LogRecord;
use crate::diskless_coordinator::publish::Publisher;
use crate::diskless_coordinator::rules::agreement::Checkpoint;
use crate::diskless_coordinator::state::State;
use crate::diskless_coordinator::view::View;
use crate::types::{LogId, LogPosition};

/// Groups that may wait for the thread.
const QUEUE: usize = 16;
/// How much may have to be replayed after a crash.
const DURABLE_EVERY: Duration = Duration::from_secs(1);

/// Hears what was applied, on the store's thread: it must not wait for anything.
pub trait StoreObserver: Send + Sync {
    /// A group was applied, written and published. To break off condemns the file: the next start rebuilds it.
    fn applied(&self, group: Vec<Applied>) -> ControlFlow<String>;
    /// Nothing more will be applied.
    fn failed(&self, reason: String);
}

/// The store has stopped; the observer was told why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the metadata store has stopped")]
pub struct StoreStopped;

/// The handle of the thread. Closing or dropping it makes everything durable and ends the thread.
pub struct MetadataStore {
    queue: Mutex<Option<std_mpsc::SyncSender<Group>>>,
    places: Arc<Semaphore>,
    thread: Mutex<Option<JoinHandle<()>>>,
    applied_at_open: LogPosition,
    checkpoint_at_open: Checkpoint,
    log_id: Option<LogId>,
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
            StoreLocation::File(path) => open_file(path, log_id)?,
            StoreLocation::Memory => {
                let backend = redb::backends::InMemoryBackend::new();
                let database = Database::builder().create_with_backend(backend).map_err(failed)?;
                rows::create_tables(&database).map_err(failed)?;
                let loaded = rows::load(&database).map_err(failed)?;
                (database, loaded)
            }
        };
        let mut publisher = Publisher::new(view);
        publisher.publish_state(&state, segments.iter().map(Arc::as_ref));
        drop(segments);
        let applied_at_open = state.applied;
        let checkpoint_at_open = state.checkpoints.back().copied().unwrap_or(Checkpoint::NONE);
        let log_id = state.genesis.as_ref().map(|g| g.log_id);
        let (queue, groups) = std_mpsc::sync_channel(QUEUE);
        let writer = Writer { database, state, publisher, observer, durable_at: Instant::now(), is_durable: true };
        let thread = std::thread::Builder::new()
            .name("metadata-store".to_owned())
            .spawn(move || writer.run(&groups))
            .map_err(failed)?;
        Ok(Self {
            queue: Mutex::new(Some(queue)),
            places: Arc::new(Semaphore::new(QUEUE)),
            thread: Mutex::new(Some(thread)),
            applied_at_open,
            checkpoint_at_open,
            log_id,
        })
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
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| StoreStopped)?;
        let queue = self.queue.lock().clone().ok_or(StoreStopped)?;
        // There is a place in the queue for every permit, so this never waits.
        queue.try_send(Group { records, _place: place }).map_err(|_| StoreStopped)
    }

    /// Applies what is queued, makes it durable and ends the thread.
    pub fn close(&self) {
        *self.queue.lock() = None;
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

impl Drop for MetadataStore {
    fn drop(&mut self) {
        self.close();
    }
}

fn failed(error: impl std::fmt::Display) -> OpenError {
    OpenError::Failed(error.to_string())
}

fn open_file(path: &Path, log_id: Option<LogId>) -> Result<(Database, Loaded), OpenError> {
    if path.exists() {
        match load_file(path) {
            Ok((database, loaded)) if belongs(&loaded.state, log_id) => return Ok((database, loaded)),
            Ok((database, _)) => {
                drop(database);
                move_aside(path, "it holds another metadata log's state")?;
            }
            Err(Unusable::InUse) => return Err(OpenError::InUse { path: path.display().to_string() }),
            Err(Unusable::Damaged(why)) => move_aside(path, &why)?,
        }
    }
    let database = Database::create(path).map_err(failed)?;
    rows::create_tables(&database).map_err(failed)?;
    let loaded = rows::load(&database).map_err(failed)?;
    Ok((database, loaded))
}

fn belongs(state: &State, log_id: Option<LogId>) -> bool {
    match (&state.genesis, log_id) {
        (Some(genesis), Some(log_id)) => genesis.log_id == log_id,
        // The log is empty, though something of it was applied: the caller must see that.
        (Some(_), None) => true,
        (None, _) => state.applied == LogPosition::NONE,
    }
}

enum Unusable {
    InUse,
    Damaged(String),
}

fn load_file(path: &Path) -> Result<(Database, Loaded), Unusable> {
    let database = Database::open(path).map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => Unusable::InUse,
        other => Unusable::Damaged(other.to_string()),
    })?;
    let loaded = rows::load(&database).map_err(|error| Unusable::Damaged(error.to_string()))?;
    Ok((database, loaded))
}

/// Keeps the one file that was moved aside last.
fn move_aside(path: &Path, why: &str) -> Result<(), OpenError> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".aside");
    let aside = PathBuf::from(aside);
    tracing::warn!(file = %path.display(), aside = %aside.display(), why, "the metadata store is rebuilt from the log");
    std::fs::rename(path, &aside).map_err(failed)
}

struct Writer {
    database: Database,
    state: State,
    publisher: Publisher,
    observer: Arc<dyn StoreObserver>,
    durable_at: Instant,
    is_durable: bool,
}

impl Writer {
    fn run(mut self, groups: &std_mpsc::Receiver<Group>) {
        loop {
            let done = match groups.recv_timeout(DURABLE_EVERY) {
                Ok(group) => self.apply_or_say_why(&group.records),
                Err(std_mpsc::RecvTimeoutError::Timeout) => self.make_durable(),
                Err(std_mpsc::RecvTimeoutError::Disconnected) => break,
            };
            if let Err(reason) = done {
                tracing::error!(reason, "the metadata store has stopped");
                self.observer.failed(reason);
                return;
            }
        }
        if let Err(reason) = self.make_durable() {
            tracing::warn!(reason, "the metadata store could not be closed cleanly; the next start replays more");
        }
    }

    /// A panic ends the store as a failed write does: what it left half done is never shown.
    fn apply_or_say_why(&mut self, records: &[LogRecord]) -> Result<(), String> {
        catch_unwind(AssertUnwindSafe(|| self.apply_group(records)))
            .unwrap_or_else(|_| Err("a record of the metadata log made this proxy panic".to_owned()))
    }

    fn apply_group(&mut self, records: &[LogRecord]) -> Result<(), String> {
        let mut group = Vec::with_capacity(records.len());
        let mut changes = Changes::default();
        for record in records {
            let applied = apply(&mut self.state, record).map_err(|error| error.to_string())?;
            applied.effects.iter().for_each(|effect| changes.take(effect));
            group.push(applied);
        }
        let durable = self.durable_at.elapsed() >= DURABLE_EVERY;
        self.write(&changes, durable).map_err(|error| format!("metadata.redb cannot be written: {error}"))?;
        self.publisher.publish(group.iter().flat_map(|applied| &applied.effects), self.state.clock.time);
        match self.observer.applied(group) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(why) => {
                rows::condemn(&self.database, &why)
                    .map_err(|error| format!("{why}; and metadata.redb could not be marked: {error}"))?;
                Err(why)
            }
        }
    }

    fn make_durable(&mut self) -> Result<(), String> {
        if self.is_durable {
            return Ok(());
        }
        self.write(&Changes::default(), true).map_err(|error| format!("metadata.redb cannot be written: {error}"))
    }

    fn write(&mut self, changes: &Changes, durable: bool) -> Result<(), LoadError> {
        let mut write = self.database.begin_write()?;
        let durability = if durable { Durability::Immediate } else { Durability::None };
        write.set_durability(durability).map_err(|error| LoadError::Redb(error.into()))?;
        write.set_quick_repair(durable);
        rows::write(&write, changes, &self.state, durable)?;
        write.commit()?;
        self.is_durable = durable;
        if durable {
            self.durable_at = Instant::now();
        }
        Ok(())
    }
}
