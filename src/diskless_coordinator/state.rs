//! Everything that the log has decided so far. Equal on every proxy that applied the same records.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::command::TopicConfig;
use super::digest::{DigestedMap, Hash};
use super::effect::CommittedSegment;
use super::rules::agreement::{Checkpoint, SinceCheckpoint};
use super::rules::log_time::LogClock;
use super::rules::placement::ProducerState;
use super::rules::versions::FIRST_VERSION;
use crate::types::{
    Endpoint, LogId, LogPosition, Offset, ProxyId, Rack, TimestampMs, TopicId, TopicPartition, WalSegmentId,
};

/// The state machine's state.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    /// The last applied record.
    pub applied: LogPosition,
    pub genesis: Option<Genesis>,
    pub clock: LogClock,
    pub swept: Sweeps,
    /// The version of the format that may be written (R12).
    pub cluster_version: u16,
    pub proxies: DigestedMap<ProxyId, Incarnation>,
    pub topics: DigestedMap<TopicId, TopicState>,
    /// The ids of the topics that are not deleted.
    pub names: BTreeMap<String, TopicId>,
    /// Names whose creation is under way, and since when (R5).
    pub pending: DigestedMap<String, TimestampMs>,
    pub partitions: DigestedMap<TopicPartition, PartitionState>,
    pub producers: DigestedMap<ProducerKey, ProducerState>,
    pub commits: RecentCommits,
    /// The sum of the hashes of all segments that were ever committed. They themselves are not kept here.
    pub segments: u128,
    /// Of every record up to `applied`.
    pub chain: Hash,
    /// The last checkpoints, oldest first (R8).
    pub checkpoints: VecDeque<Checkpoint>,
    pub since_checkpoint: SinceCheckpoint,
}

/// What the log's first command said (R1).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Genesis {
    pub log_id: LogId,
    pub upstream_cluster_id: String,
    pub metadata_topic_id: TopicId,
}

/// Log time of the last look for what expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Sweeps {
    pub names_and_proxies: TimestampMs,
    pub producers: TimestampMs,
}

/// The present incarnation of a proxy id.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Incarnation {
    /// The position of its last `Open`.
    pub epoch: LogPosition,
    /// The position of the first `Open` with its nonce: epochs from here on are its own.
    pub first_epoch: LogPosition,
    pub nonce: [u8; 16],
    /// Nonces that this one fenced, newest last: an `Open` that quotes one of them comes too late.
    pub fenced_nonces: Vec<[u8; 16]>,
    pub zone: Rack,
    pub endpoint: Endpoint,
    pub min_version: u16,
    pub max_version: u16,
    /// The counter of its last admitted command.
    pub counter: u64,
    pub last_heard: TimestampMs,
    pub closed: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TopicState {
    pub id: TopicId,
    pub name: String,
    pub partitions: i32,
    pub leader_epoch: i32,
    pub config: TopicConfig,
    /// A deleted topic is hidden at once; its id stays known, so that it never becomes classic.
    pub deleted_at: Option<TimestampMs>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartitionState {
    pub log_start_offset: Offset,
    pub log_end_offset: Offset,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ProducerKey {
    pub partition: TopicPartition,
    pub producer_id: i64,
}

/// The commits of the last window: a repeated one gets the outcome of the first.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RecentCommits {
    by_id: BTreeMap<WalSegmentId, Arc<CommittedSegment>>,
    in_order: VecDeque<(TimestampMs, WalSegmentId)>,
}

impl RecentCommits {
    pub fn get(&self, id: &WalSegmentId) -> Option<&Arc<CommittedSegment>> {
        self.by_id.get(id)
    }

    pub fn insert(&mut self, segment: Arc<CommittedSegment>) {
        self.in_order.push_back((segment.committed_at, segment.id));
        self.by_id.insert(segment.id, segment);
    }

    /// Forgets commits made before `horizon`. Their births are older still, so a repeat is refused by its age.
    pub fn forget_before(&mut self, horizon: TimestampMs) {
        while let Some((committed_at, id)) = self.in_order.front()
            && *committed_at < horizon
        {
            self.by_id.remove(id);
            self.in_order.pop_front();
        }
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            applied: LogPosition::NONE,
            genesis: None,
            clock: LogClock::default(),
            swept: Sweeps::default(),
            cluster_version: FIRST_VERSION,
            proxies: DigestedMap::default(),
            topics: DigestedMap::default(),
            names: BTreeMap::new(),
            pending: DigestedMap::default(),
            partitions: DigestedMap::default(),
            producers: DigestedMap::default(),
            commits: RecentCommits::default(),
            segments: 0,
            chain: Hash::default(),
            checkpoints: VecDeque::new(),
            since_checkpoint: SinceCheckpoint::default(),
        }
    }
}

impl State {
    /// A topic that exists and is not deleted.
    pub fn live_topic(&self, id: &TopicId) -> Option<&TopicState> {
        self.topics.get(id).filter(|topic| topic.deleted_at.is_none())
    }

    /// Takes a segment into the sum of all.
    pub fn count_segment(&mut self, segment: &CommittedSegment) {
        self.segments = self.segments.wrapping_add(Hash::of(segment).number());
    }

    /// A hash of the whole state, without the checkpoints: equal on every proxy at the same position (I5). Costs as
    /// much as what changed since the last `settle`.
    pub fn digest(&self) -> Hash {
        Hash::of(&(
            (self.applied, &self.genesis, &self.clock, self.swept, self.cluster_version),
            (self.proxies.sum(), self.topics.sum(), self.pending.sum()),
            (self.partitions.sum(), self.producers.sum(), self.segments),
        ))
    }

    /// Makes the next `digest` cheap.
    pub fn settle(&mut self) {
        self.proxies.settle();
        self.topics.settle();
        self.pending.settle();
        self.partitions.settle();
        self.producers.settle();
    }
}
