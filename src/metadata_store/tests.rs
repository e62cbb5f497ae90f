//! The file: what was written is what is read, and a file that is not ours is never half used.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Database, ReadableTable as _, TableDefinition};

use super::*;
use crate::diskless_coordinator::apply::{Applied, apply};
use crate::diskless_coordinator::checks;
use crate::diskless_coordinator::command::{Command, CommitSegment, Proposer, TopicConfig};
use crate::diskless_coordinator::encoding::{LogRecord, encode};
use crate::diskless_coordinator::rules::agreement::Checkpoint;
use crate::diskless_coordinator::state::State;
use crate::diskless_coordinator::view::View;
use crate::types::{Endpoint, LogId, LogPosition, ProxyId, TopicId, TopicPartition, WalSegmentId};
use crate::wal_segment::{BatchMeta, PartitionBatches};

#[derive(Default)]
struct Heard {
    applied: Mutex<Vec<LogPosition>>,
    failed: Mutex<Option<String>>,
    /// Breaks off with this.
    condemn: Mutex<Option<String>>,
}

impl StoreObserver for Heard {
    fn applied(&self, group: Vec<Applied>) -> ControlFlow<String> {
        self.applied.lock().extend(group.iter().map(|applied| applied.position));
        self.condemn.lock().take().map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }

    fn failed(&self, reason: String) {
        *self.failed.lock() = Some(reason);
    }
}

const TOPIC: TopicId = TopicId([5; 16]);

/// The how-manieth commit of a producer that writes one record each time.
fn commit(n: u8) -> Command {
    let batch = BatchMeta {
        byte_length: 100,
        last_offset_delta: 0,
        max_timestamp: 5,
        producer_id: 7,
        producer_epoch: 0,
        base_sequence: i32::from(n),
        follows: false,
    };
    let partition = TopicPartition { topic_id: TOPIC, partition: 1 };
    Command::CommitSegment(CommitSegment {
        segment: WalSegmentId { birth: LogPosition(2), epoch: LogPosition(1), sequence: u32::from(n) },
        object_size: 500,
        partitions: vec![PartitionBatches { partition, batches: vec![batch] }],
    })
}

fn log() -> Vec<LogRecord> {
    let commands = [
        Command::Genesis {
            log_id: LogId([1; 16]),
            upstream_cluster_id: "cluster".to_owned(),
            metadata_topic_id: TopicId([2; 16]),
        },
        Command::Open {
            nonce: [3; 16],
            zone: "a".to_owned(),
            endpoint: Endpoint { host: "h".to_owned(), port: 1 },
            min_version: 1,
            max_version: 1,
        },
        Command::PendingTopic { name: "orders".to_owned() },
        Command::PendingTopic { name: "payments".to_owned() },
        Command::RegisterTopic {
            name: "payments".to_owned(),
            topic_id: TOPIC,
            partitions: 2,
            leader_epoch: 0,
            config: TopicConfig { version: 1, ..TopicConfig::default() },
        },
        commit(0),
        commit(1),
        Command::PendingTopicDropped { name: "orders".to_owned() },
        Command::PendingTopic { name: "orders".to_owned() },
        commit(1),
        commit(2),
    ];
    let record = |(position, command): (i64, &Command)| {
        let (epoch, counter) =
            if position < 2 { (LogPosition::NONE, 0) } else { (LogPosition(1), position.unsigned_abs() - 1) };
        let proposer = Proposer { proxy: ProxyId(1), epoch, counter, wall_time: 1_000, quoted: Checkpoint::NONE };
        LogRecord { position: LogPosition(position), append_time_ms: 1_000, bytes: encode(&proposer, command).into() }
    };
    (0..).zip(&commands).map(record).collect()
}

struct Opened {
    store: MetadataStore,
    view: Arc<View>,
    heard: Arc<Heard>,
}

fn open(location: &StoreLocation, log_id: Option<LogId>) -> Result<Opened, OpenError> {
    let (view, heard) = (Arc::new(View::default()), Arc::new(Heard::default()));
    let store = MetadataStore::open(location, log_id, Arc::clone(&view), Arc::clone(&heard) as _)?;
    Ok(Opened { store, view, heard })
}

fn file() -> (tempfile::TempDir, PathBuf, StoreLocation) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("metadata.redb");
    let location = StoreLocation::File(path.clone());
    (dir, path, location)
}

#[tokio::test]
async fn what_was_applied_is_there_after_a_restart() {
    let (_dir, _path, location) = file();
    let opened = open(&location, None).expect("opened");
    opened.store.apply(log()).await.expect("it goes on");
    opened.store.close();
    let last = log()[log().len() - 1].position;
    assert_eq!(*opened.heard.applied.lock(), (0..=last.0).map(LogPosition).collect::<Vec<_>>());
    let again = open(&location, Some(LogId([1; 16]))).expect("opened again");
    assert_eq!(again.store.applied_at_open(), last);
    assert_eq!(again.view.proxies().log_id, Some(LogId([1; 16])));
    assert!(again.view.topics().pending.contains("orders"));
    let topics = again.view.topics();
    let partitions = &topics.named("payments").expect("it was registered").partitions;
    assert_eq!(partitions[1].bounds().high_watermark, 3);
    assert_eq!(partitions[1].find_batches(0, 1_000).len(), 3);
    assert_eq!(again.view.log_time(), 1_000);
    let in_use = open(&location, None).err();
    assert!(matches!(in_use, Some(OpenError::InUse { .. })), "{in_use:?}");
}

#[tokio::test]
async fn i5_the_state_that_is_read_back_is_the_state_that_was_applied_however_it_was_grouped() {
    let mut expected = State::default();
    for record in log() {
        let _ = apply(&mut expected, &record).expect("it can be applied");
    }
    for group in [1, 2, 3, 100] {
        let (_dir, path, location) = file();
        let opened = open(&location, None).expect("opened");
        for records in log().chunks(group) {
            opened.store.apply(records.to_vec()).await.expect("it goes on");
        }
        opened.store.close();
        let database = Database::open(path).expect("the store is closed");
        let loaded = rows::load(&database).expect("it can be read");
        assert_eq!(loaded.state, expected);
        assert_eq!(loaded.state.digest(), expected.digest());
        assert_eq!(checks::verify(&loaded.state, loaded.segments.iter().map(Arc::as_ref)), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_file_of_another_log_is_moved_aside() {
    let (_dir, path, location) = file();
    let opened = open(&location, None).expect("opened");
    opened.store.apply(log()).await.expect("it goes on");
    opened.store.close();
    let other = open(&location, Some(LogId([9; 16]))).expect("an empty one in its place");
    assert_eq!(other.store.applied_at_open(), LogPosition::NONE);
    assert!(path.with_extension("redb.aside").exists());
}

#[test]
fn a_damaged_or_newer_file_is_moved_aside() {
    let (_dir, path, location) = file();
    std::fs::write(&path, b"this is no database").expect("written");
    assert!(open(&location, None).is_ok());
    std::fs::remove_file(&path).expect("removed");
    let newer = Database::create(&path).expect("created");
    let write = newer.begin_write().expect("a transaction");
    let meta: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
    write.open_table(meta).expect("a table").insert("schema", [99].as_slice()).expect("inserted");
    write.commit().expect("committed");
    drop(newer);
    let opened = open(&location, None).expect("an empty one in its place");
    assert_eq!(opened.store.applied_at_open(), LogPosition::NONE);
}

#[tokio::test]
async fn a_row_that_was_changed_by_one_byte_is_found_out_and_the_file_is_rebuilt() {
    let tables = ["segments", "partitions", "producers", "topics", "proxies"];
    for (number, table) in tables.into_iter().enumerate() {
        let (_dir, path, location) = file();
        let opened = open(&location, None).expect("opened");
        opened.store.apply(log()).await.expect("it goes on");
        opened.store.close();
        change_last_byte(&path, number);
        let again = open(&location, Some(LogId([1; 16]))).expect("an empty one in its place");
        assert_eq!(again.store.applied_at_open(), LogPosition::NONE, "{table}");
        assert!(path.with_extension("redb.aside").exists(), "{table}");
    }
}

macro_rules! change_last_byte {
    ($write:expr, $table:expr) => {{
        let mut table = $write.open_table($table).expect("a table");
        let (key, mut row) = {
            let (key, row) = table.first().expect("readable").expect("a row");
            (key.value(), row.value().to_vec())
        };
        *row.last_mut().expect("not empty") ^= 1;
        table.insert(key, row.as_slice()).expect("inserted");
    }};
}

/// Changes the last byte of the first row of a table.
fn change_last_byte(path: &Path, table: usize) {
    let database = Database::open(path).expect("the store is closed");
    let write = database.begin_write().expect("a transaction");
    match table {
        0 => change_last_byte!(write, rows::SEGMENTS),
        1 => change_last_byte!(write, rows::PARTITIONS),
        2 => change_last_byte!(write, rows::PRODUCERS),
        3 => change_last_byte!(write, rows::TOPICS),
        _ => change_last_byte!(write, rows::PROXIES),
    }
    write.commit().expect("committed");
}

#[tokio::test]
async fn r8_a_file_whose_state_was_found_wrong_is_rebuilt_at_the_next_start() {
    let (_dir, path, location) = file();
    let opened = open(&location, None).expect("opened");
    *opened.heard.condemn.lock() = Some("two others disagree".to_owned());
    opened.store.apply(log()).await.expect("it is queued");
    opened.store.close();
    assert_eq!(opened.heard.failed.lock().as_deref(), Some("two others disagree"));
    assert_eq!(opened.store.apply(Vec::new()).await, Err(StoreStopped));
    let again = open(&location, Some(LogId([1; 16]))).expect("an empty one in its place");
    assert_eq!(again.store.applied_at_open(), LogPosition::NONE);
    assert!(path.with_extension("redb.aside").exists());
}

/// A disk on which nothing can be done just now.
#[derive(Debug)]
struct FullDisk;

impl Disk for FullDisk {
    fn open(&self) -> Result<Database, redb::DatabaseError> {
        Err(redb::StorageError::Io(std::io::ErrorKind::StorageFull.into()).into())
    }

    fn set_aside(&self, why: &str) -> Result<(), OpenError> {
        panic!("the file may be good, but is set aside: {why}")
    }
}

#[test]
fn a_file_on_a_full_disk_is_left_where_it_is() {
    let opened = open(&StoreLocation::Simulated(Arc::new(FullDisk)), None);
    assert!(matches!(opened.err(), Some(OpenError::Failed(why)) if why.contains("storage space")));
}

#[tokio::test]
async fn a_record_that_cannot_be_understood_stops_the_store_and_shows_nothing() {
    let opened = open(&StoreLocation::Memory, None).expect("opened");
    let mut records = log();
    let mut torn = records[2].bytes.to_vec();
    torn[10] ^= 1;
    records[2].bytes = torn.into();
    opened.store.apply(records).await.expect("it is queued");
    opened.store.close();
    assert!(opened.heard.failed.lock().as_ref().is_some_and(|why| why.contains("record 2")));
    assert!(opened.heard.applied.lock().is_empty());
    assert_eq!(opened.view.proxies().log_id, None, "nothing of the group is shown");
    assert_eq!(opened.store.apply(Vec::new()).await, Err(StoreStopped));
}
