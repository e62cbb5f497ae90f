//! The tables of `metadata.redb`, and how a state becomes rows and rows become a state.
//!
//! | table      | key                            | value                                        |
//! |------------|--------------------------------|----------------------------------------------|
//! | meta       | name                           | format, log position and time, genesis, ...  |
//! | segments   | log position of the commit     | all batches of the segment, with outcomes    |
//! | partitions | topic id, partition            | offsets                                      |
//! | producers  | topic id, partition, producer  | epoch and last batches                       |
//! | topics     | topic id                       | name, configuration                          |
//! | pending    | name                           | log time of the announcement                 |
//! | proxies    | proxy id                       | incarnation                                  |
//!
//! Values are postcard. One row for a whole segment keeps a transaction small however many partitions it has.

use std::collections::BTreeMap;
use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable as _, Table, TableDefinition, WriteTransaction};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::diskless_coordinator::digest::Hash;
use crate::diskless_coordinator::effect::{CommittedSegment, Effect};
use crate::diskless_coordinator::rules::agreement::SinceCheckpoint;
use crate::diskless_coordinator::rules::log_time::{COMMIT_WINDOW_MS, LogClock, TimeMark};
use crate::diskless_coordinator::rules::placement::ProducerState;
use crate::diskless_coordinator::state::{
    Genesis, Incarnation, PartitionState, ProducerKey, State, Sweeps, TopicState,
};
use crate::types::{LogPosition, ProxyId, TimestampMs, TopicId, TopicPartition};

type Bytes = &'static [u8];

const META: TableDefinition<&str, Bytes> = TableDefinition::new("meta");
pub(super) const SEGMENTS: TableDefinition<i64, Bytes> = TableDefinition::new("segments");
pub(super) const PARTITIONS: TableDefinition<([u8; 16], i32), Bytes> = TableDefinition::new("partitions");
pub(super) const PRODUCERS: TableDefinition<([u8; 16], i32, i64), Bytes> = TableDefinition::new("producers");
pub(super) const TOPICS: TableDefinition<[u8; 16], Bytes> = TableDefinition::new("topics");
const PENDING: TableDefinition<&str, i64> = TableDefinition::new("pending");
pub(super) const PROXIES: TableDefinition<u32, Bytes> = TableDefinition::new("proxies");

/// Grows with every change of the tables or of what is in them.
const SCHEMA_VERSION: u32 = 2;

/// Where the store stands; written with every group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Progress {
    applied: LogPosition,
    time: TimestampMs,
    swept: Sweeps,
    cluster_version: u16,
    chain: Hash,
    since_checkpoint: SinceCheckpoint,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error("schema version {0} is not {SCHEMA_VERSION}")]
    Version(u32),
    #[error("its state was found to be wrong: {0}")]
    Condemned(String),
    #[error("its rows do not make the state that was written: the digest is {found} instead of {expected}")]
    Digest { expected: Hash, found: Hash },
    #[error("a row cannot be read: {0}")]
    Row(#[from] postcard::Error),
    #[error(transparent)]
    Redb(#[from] redb::Error),
}

macro_rules! from_redb {
    ($($error:ident),+) => {
        $(impl From<redb::$error> for LoadError {
            fn from(error: redb::$error) -> Self { Self::Redb(error.into()) }
        })+
    };
}
from_redb!(TransactionError, TableError, StorageError, CommitError);

/// The last value of each thing that a group of records changed; `None` removes the row.
#[derive(Default)]
pub(super) struct Changes {
    genesis: Option<Genesis>,
    time_marks: bool,
    checkpoints: bool,
    segments: Vec<Arc<CommittedSegment>>,
    partitions: BTreeMap<TopicPartition, PartitionState>,
    producers: BTreeMap<ProducerKey, Option<ProducerState>>,
    topics: BTreeMap<TopicId, TopicState>,
    pending: BTreeMap<String, Option<TimestampMs>>,
    proxies: BTreeMap<ProxyId, Incarnation>,
}

impl Changes {
    pub(super) fn take(&mut self, effect: &Effect) {
        match effect {
            Effect::Genesis(genesis) => self.genesis = Some(genesis.clone()),
            Effect::TimeMarks => self.time_marks = true,
            Effect::Proxy(proxy, incarnation) => {
                self.proxies.insert(*proxy, (**incarnation).clone());
            }
            Effect::Pending(name, since) => {
                self.pending.insert(name.clone(), Some(*since));
            }
            Effect::PendingGone(name) => {
                self.pending.insert(name.clone(), None);
            }
            Effect::Topic(topic) => {
                self.topics.insert(topic.id, (**topic).clone());
            }
            Effect::Partition(partition, log) => {
                self.partitions.insert(*partition, *log);
            }
            Effect::Producer(key, producer) => {
                self.producers.insert(*key, Some(*producer));
            }
            Effect::ProducerExpired(key) => {
                self.producers.insert(*key, None);
            }
            Effect::Segment(segment) => self.segments.push(Arc::clone(segment)),
            // Part of the progress, which is written every time.
            Effect::ClusterVersion(_) => {}
            Effect::Checkpoint(_) => self.checkpoints = true,
        }
    }
}

/// Whether nothing was ever written to it.
pub(super) fn is_new(database: &Database) -> Result<bool, LoadError> {
    Ok(database.begin_read()?.list_tables()?.next().is_none())
}

/// Makes the tables of an empty file.
pub(super) fn create_tables(database: &Database) -> Result<(), LoadError> {
    let write = database.begin_write()?;
    write.open_table(META)?.insert("schema", encoded(&SCHEMA_VERSION)?.as_slice())?;
    write.open_table(SEGMENTS)?;
    write.open_table(PARTITIONS)?;
    write.open_table(PRODUCERS)?;
    write.open_table(TOPICS)?;
    write.open_table(PENDING)?;
    write.open_table(PROXIES)?;
    write.commit()?;
    Ok(())
}

/// Marks a file whose state is wrong, for good.
pub(super) fn condemn(database: &Database, why: &str) -> Result<(), LoadError> {
    let write = database.begin_write()?;
    put(&mut write.open_table(META)?, "condemned", &why)?;
    write.commit()?;
    Ok(())
}

/// Writes what a group changed, and where the state now stands. What becomes durable has its digest beside it.
pub(super) fn write(
    write: &WriteTransaction,
    changes: &Changes,
    state: &State,
    durable: bool,
) -> Result<(), LoadError> {
    write_meta(write, changes, state)?;
    if durable {
        put(&mut write.open_table(META)?, "digest", &(state.applied, state.digest()))?;
    }
    let mut segments = write.open_table(SEGMENTS)?;
    for segment in &changes.segments {
        put(&mut segments, segment.position.0, segment.as_ref())?;
    }
    let mut partitions = write.open_table(PARTITIONS)?;
    for (key, log) in &changes.partitions {
        put(&mut partitions, (key.topic_id.0, key.partition), log)?;
    }
    let mut producers = write.open_table(PRODUCERS)?;
    for (key, producer) in &changes.producers {
        let row = (key.partition.topic_id.0, key.partition.partition, key.producer_id);
        match producer {
            Some(producer) => put(&mut producers, row, producer)?,
            None => drop(producers.remove(row)?),
        }
    }
    let mut topics = write.open_table(TOPICS)?;
    for (id, topic) in &changes.topics {
        put(&mut topics, id.0, topic)?;
    }
    let mut pending = write.open_table(PENDING)?;
    for (name, since) in &changes.pending {
        match since {
            Some(since) => drop(pending.insert(name.as_str(), since)?),
            None => drop(pending.remove(name.as_str())?),
        }
    }
    let mut proxies = write.open_table(PROXIES)?;
    for (proxy, incarnation) in &changes.proxies {
        put(&mut proxies, proxy.0, incarnation)?;
    }
    Ok(())
}

fn write_meta(write: &WriteTransaction, changes: &Changes, state: &State) -> Result<(), LoadError> {
    let mut meta = write.open_table(META)?;
    let progress = Progress {
        applied: state.applied,
        time: state.clock.time,
        swept: state.swept,
        cluster_version: state.cluster_version,
        chain: state.chain,
        since_checkpoint: state.since_checkpoint,
    };
    put(&mut meta, "progress", &progress)?;
    if changes.checkpoints {
        put(&mut meta, "checkpoints", &state.checkpoints)?;
    }
    if changes.time_marks {
        put(&mut meta, "time_marks", &state.clock.marks)?;
    }
    if let Some(genesis) = &changes.genesis {
        put(&mut meta, "genesis", genesis)?;
    }
    Ok(())
}

fn put<'k, K: redb::Key + 'static>(
    table: &mut Table<'_, K, Bytes>,
    key: impl std::borrow::Borrow<K::SelfType<'k>>,
    value: &impl Serialize,
) -> Result<(), LoadError> {
    table.insert(key, encoded(value)?.as_slice())?;
    Ok(())
}

fn encoded(value: &impl Serialize) -> Result<Vec<u8>, postcard::Error> {
    postcard::to_stdvec(value)
}

/// What a file holds.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) state: State,
    /// In the order of their commits.
    pub(super) segments: Vec<Arc<CommittedSegment>>,
}

/// Reads a whole file. A file without tables is an empty one.
pub(super) fn load(database: &impl ReadableDatabase) -> Result<Loaded, LoadError> {
    let read = database.begin_read()?;
    let mut state = State::default();
    let meta = match read.open_table(META) {
        Ok(meta) => meta,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Loaded { state, segments: Vec::new() }),
        Err(error) => return Err(error.into()),
    };
    let version: u32 = get(&meta, "schema")?.unwrap_or(0);
    if version != SCHEMA_VERSION {
        return Err(LoadError::Version(version));
    }
    if let Some(why) = get::<String>(&meta, "condemned")? {
        return Err(LoadError::Condemned(why));
    }
    if let Some(progress) = get::<Progress>(&meta, "progress")? {
        let marks: Option<std::collections::VecDeque<TimeMark>> = get(&meta, "time_marks")?;
        state.applied = progress.applied;
        state.clock = LogClock { time: progress.time, marks: marks.unwrap_or_default() };
        state.swept = progress.swept;
        state.cluster_version = progress.cluster_version;
        state.chain = progress.chain;
        state.since_checkpoint = progress.since_checkpoint;
        state.checkpoints = get(&meta, "checkpoints")?.unwrap_or_default();
    }
    state.genesis = get(&meta, "genesis")?;
    load_topics(&read, &mut state)?;
    for row in read.open_table(PROXIES)?.iter()? {
        let (key, value) = row?;
        state.proxies.insert(ProxyId(key.value()), postcard::from_bytes(value.value())?);
    }
    let segments = load_segments(&read, &mut state)?;
    state.settle();
    if let Some((position, expected)) = get::<(LogPosition, Hash)>(&meta, "digest")? {
        let found = state.digest();
        if position == state.applied && found != expected {
            return Err(LoadError::Digest { expected, found });
        }
    }
    Ok(Loaded { state, segments })
}

fn get<T: DeserializeOwned>(
    meta: &redb::ReadOnlyTable<&'static str, Bytes>,
    name: &str,
) -> Result<Option<T>, LoadError> {
    Ok(meta.get(name)?.map(|row| postcard::from_bytes(row.value())).transpose()?)
}

fn load_topics(read: &redb::ReadTransaction, state: &mut State) -> Result<(), LoadError> {
    for row in read.open_table(TOPICS)?.iter()? {
        let topic: TopicState = postcard::from_bytes(row?.1.value())?;
        if topic.deleted_at.is_none() {
            state.names.insert(topic.name.clone(), topic.id);
        }
        state.topics.insert(topic.id, topic);
    }
    for row in read.open_table(PENDING)?.iter()? {
        let (name, since) = row?;
        state.pending.insert(name.value().to_owned(), since.value());
    }
    for row in read.open_table(PARTITIONS)?.iter()? {
        let (key, value) = row?;
        let (topic_id, partition) = key.value();
        let key = TopicPartition { topic_id: TopicId(topic_id), partition };
        state.partitions.insert(key, postcard::from_bytes(value.value())?);
    }
    for row in read.open_table(PRODUCERS)?.iter()? {
        let (key, value) = row?;
        let (topic_id, partition, producer_id) = key.value();
        let partition = TopicPartition { topic_id: TopicId(topic_id), partition };
        state.producers.insert(ProducerKey { partition, producer_id }, postcard::from_bytes(value.value())?);
    }
    Ok(())
}

fn load_segments(read: &redb::ReadTransaction, state: &mut State) -> Result<Vec<Arc<CommittedSegment>>, LoadError> {
    let horizon = state.clock.time.saturating_sub(COMMIT_WINDOW_MS);
    let mut segments = Vec::new();
    for row in read.open_table(SEGMENTS)?.iter()? {
        let segment: Arc<CommittedSegment> = Arc::new(postcard::from_bytes(row?.1.value())?);
        state.count_segment(&segment);
        if segment.committed_at >= horizon {
            state.commits.insert(Arc::clone(&segment));
        }
        segments.push(segment);
    }
    Ok(segments)
}
