//! The metadata log in a file of its own, for a single process: `log.redb`, with durable group commit.
//!
//! One thread writes; all records that wait become durable in one transaction. Each tail has a thread that reads.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::thread::JoinHandle;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt as _;
use parking_lot::{Condvar, Mutex};
use redb::{Database, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use tokio::sync::{mpsc, oneshot};

use super::{
    AppendError, Appending, GROUP_BYTES, GROUP_RECORDS, LogError, LogRecord, MetadataLog, TAIL_GROUPS, TAIL_IDLE, Tail,
};
use crate::clock::WallClock;
use crate::types::{LogPosition, TimestampMs};

/// Position to append time and bytes.
const RECORDS: TableDefinition<i64, (i64, &[u8])> = TableDefinition::new("records");
/// Appends that may wait for the writer.
const QUEUE: usize = 16_384;

/// Where the records are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogLocation {
    File(PathBuf),
    /// Gone with the process.
    Memory,
}

/// A log in this process. Dropping it waits until everything that was queued is durable.
pub struct EmbeddedLog {
    shared: Arc<Shared>,
    queue: Option<std_mpsc::SyncSender<Waiting>>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    database: Database,
    end: Mutex<LogPosition>,
    moved: Condvar,
}

struct Waiting {
    record: Vec<u8>,
    reply: oneshot::Sender<Result<LogPosition, AppendError>>,
}

impl EmbeddedLog {
    pub fn open(location: &LogLocation, clock: WallClock) -> Result<Self, LogError> {
        let database = match location {
            LogLocation::File(path) => create(path)?,
            LogLocation::Memory => {
                Database::builder().create_with_backend(redb::backends::InMemoryBackend::new()).map_err(unavailable)?
            }
        };
        let end = prepare(&database).map_err(unavailable)?;
        let shared = Arc::new(Shared { database, end: Mutex::new(end), moved: Condvar::new() });
        let (queue, waiting) = std_mpsc::sync_channel(QUEUE);
        let log = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("metadata-log".to_owned())
            .spawn(move || write_groups(&log, &waiting, &clock))
            .map_err(unavailable)?;
        Ok(Self { shared, queue: Some(queue), writer: Some(writer) })
    }
}

fn create(path: &Path) -> Result<Database, LogError> {
    Database::create(path).map_err(|error| LogError::Unavailable(format!("{}: {error}", path.display())))
}

fn unavailable(error: impl std::fmt::Display) -> LogError {
    LogError::Unavailable(error.to_string())
}

/// Makes the table, and says where the log ends.
fn prepare(database: &Database) -> Result<LogPosition, redb::Error> {
    let write = database.begin_write()?;
    let end = {
        let records = write.open_table(RECORDS)?;
        let last = records.last()?.map(|(position, _)| position.value());
        LogPosition(last.map_or(0, |last| last + 1))
    };
    write.commit()?;
    Ok(end)
}

fn write_groups(log: &Shared, queue: &std_mpsc::Receiver<Waiting>, clock: &WallClock) {
    while let Ok(first) = queue.recv() {
        let mut group = vec![first];
        group.extend(queue.try_iter().take(GROUP_RECORDS - 1));
        let first = *log.end.lock();
        match write_group(&log.database, first, &group, clock.now_ms()) {
            Ok(end) => {
                *log.end.lock() = end;
                log.moved.notify_all();
                for (n, waiting) in (first.0..).zip(group) {
                    let _ = waiting.reply.send(Ok(LogPosition(n)));
                }
            }
            Err(error) => {
                // The file may or may not hold the group after a failed sync. To go on could give a position twice.
                tracing::error!(%error, "the metadata log file cannot be written; no more records are taken");
                for waiting in group {
                    let _ = waiting.reply.send(Err(AppendError::Unknown(error.to_string())));
                }
                return;
            }
        }
    }
}

fn write_group(
    database: &Database,
    first: LogPosition,
    group: &[Waiting],
    now: TimestampMs,
) -> Result<LogPosition, redb::Error> {
    let mut write = database.begin_write()?;
    write.set_durability(Durability::Immediate)?;
    write.set_quick_repair(true);
    let mut position = first;
    {
        let mut records = write.open_table(RECORDS)?;
        for waiting in group {
            records.insert(position.0, (now, waiting.record.as_slice()))?;
            position = position.next();
        }
    }
    write.commit()?;
    Ok(position)
}

#[async_trait]
impl MetadataLog for EmbeddedLog {
    fn append(&self, record: Vec<u8>) -> Appending {
        let (reply, answer) = oneshot::channel();
        let refused = match self.queue.as_ref().map(|queue| queue.try_send(Waiting { record, reply })) {
            Some(Ok(())) => None,
            Some(Err(std_mpsc::TrySendError::Full(_))) => Some("the log's queue is full"),
            Some(Err(std_mpsc::TrySendError::Disconnected(_))) | None => Some("the log has stopped"),
        };
        async move {
            match refused {
                Some(why) => Err(AppendError::NotAppended(why.to_owned())),
                None => answer.await.unwrap_or_else(|_| Err(AppendError::Unknown("the log stopped".to_owned()))),
            }
        }
        .boxed()
    }

    fn renew(&self) {}

    fn tail(&self, from: LogPosition) -> Result<Tail, LogError> {
        let (groups, receiver) = mpsc::channel(TAIL_GROUPS);
        let log = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name("metadata-log-tail".to_owned())
            .spawn(move || read_groups(&log, from, &groups))
            .map_err(unavailable)?;
        Ok(Tail { groups: receiver })
    }

    async fn start(&self) -> Result<LogPosition, LogError> {
        Ok(LogPosition(0))
    }

    async fn end(&self) -> Result<LogPosition, LogError> {
        Ok(*self.shared.end.lock())
    }
}

impl Drop for EmbeddedLog {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn read_groups(log: &Shared, from: LogPosition, groups: &mpsc::Sender<Result<Vec<LogRecord>, LogError>>) {
    let mut next = from;
    while !groups.is_closed() {
        let mut end = log.end.lock();
        if next >= *end {
            if next > *end {
                let _ = groups.blocking_send(Err(LogError::Lost { expected: next, got: *end }));
                return;
            }
            log.moved.wait_for(&mut end, TAIL_IDLE);
            continue;
        }
        // Never beyond the end that is announced: a transaction is visible a moment before its writer says so.
        let announced = *end;
        drop(end);
        if read_group(log, &mut next, announced, groups).is_break() {
            return;
        }
    }
}

fn read_group(
    log: &Shared,
    next: &mut LogPosition,
    end: LogPosition,
    groups: &mpsc::Sender<Result<Vec<LogRecord>, LogError>>,
) -> ControlFlow<()> {
    let group = read_between(&log.database, *next, end).map_err(unavailable);
    let failed = group.is_err();
    if let Ok(records) = &group {
        let Some(last) = records.last() else { return ControlFlow::Continue(()) };
        *next = last.position.next();
    }
    if groups.blocking_send(group).is_err() || failed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

fn read_between(database: &Database, from: LogPosition, end: LogPosition) -> Result<Vec<LogRecord>, redb::Error> {
    let read = database.begin_read()?;
    let records = read.open_table(RECORDS)?;
    let mut group = Vec::new();
    let mut bytes = 0;
    for row in records.range(from.0..end.0)? {
        let (position, value) = row?;
        let (append_time_ms, record) = value.value();
        bytes += record.len();
        let bytes_of_record = Bytes::copy_from_slice(record);
        group.push(LogRecord { position: LogPosition(position.value()), append_time_ms, bytes: bytes_of_record });
        if group.len() >= GROUP_RECORDS || bytes >= GROUP_BYTES {
            break;
        }
    }
    Ok(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> EmbeddedLog {
        EmbeddedLog::open(&LogLocation::Memory, WallClock::new(|| 77)).expect("memory is there")
    }

    async fn read(log: &EmbeddedLog, from: i64, count: usize) -> Vec<LogRecord> {
        let mut tail = log.tail(LogPosition(from)).expect("the log can be read");
        let mut records = Vec::new();
        while records.len() < count {
            records.extend(tail.groups.recv().await.expect("the log goes on").expect("the log can be read"));
        }
        records
    }

    #[tokio::test]
    async fn appends_keep_call_order_and_are_read_back() {
        let log = memory();
        let appends: Vec<Appending> = (0u8..100).map(|n| log.append(vec![n])).collect();
        for (n, append) in (0i64..).zip(appends) {
            assert_eq!(append.await, Ok(LogPosition(n)));
        }
        assert_eq!(log.end().await, Ok(LogPosition(100)));
        let records = read(&log, 40, 60).await;
        assert_eq!(
            records[0],
            LogRecord { position: LogPosition(40), append_time_ms: 77, bytes: Bytes::from(vec![40]) }
        );
        assert_eq!(records.len(), 60);
    }

    #[tokio::test]
    async fn a_tail_hears_of_later_appends() {
        let log = memory();
        let mut tail = log.tail(LogPosition(0)).expect("the log can be read");
        log.append(vec![1]).await.expect("appended");
        assert_eq!(tail.groups.recv().await.expect("goes on").expect("readable").len(), 1);
        log.append(vec![2]).await.expect("appended");
        assert_eq!(tail.groups.recv().await.expect("goes on").expect("readable")[0].position, LogPosition(1));
    }

    #[tokio::test]
    async fn records_outlive_the_process() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let location = LogLocation::File(dir.path().join("log.redb"));
        let log = EmbeddedLog::open(&location, WallClock::new(|| 1)).expect("opened");
        log.append(vec![1]).await.expect("appended");
        drop(log);
        // A tail's thread may hold the file for a moment; none was started here.
        let log = EmbeddedLog::open(&location, WallClock::new(|| 2)).expect("opened again");
        assert_eq!(log.append(vec![2]).await, Ok(LogPosition(1)));
        let records = read(&log, 0, 2).await;
        assert_eq!(records.iter().map(|r| r.append_time_ms).collect::<Vec<_>>(), [1, 2]);
    }

    #[tokio::test]
    async fn a_reader_beyond_the_end_learns_that_records_are_lost() {
        let log = memory();
        let mut tail = log.tail(LogPosition(5)).expect("a tail");
        let lost = LogError::Lost { expected: LogPosition(5), got: LogPosition(0) };
        assert_eq!(tail.groups.recv().await, Some(Err(lost)));
    }
}
