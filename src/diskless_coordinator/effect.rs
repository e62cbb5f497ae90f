//! What applying a record changed, as values. The metadata store writes rows from them, and only then the view
//! that readers see is changed from the same values.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::outcome::BatchOutcome;
use super::rules::agreement::Checkpoint;
use super::rules::placement::ProducerState;
use super::state::{Genesis, Incarnation, PartitionState, ProducerKey, TopicState};
use crate::types::{LogPosition, ProxyId, TimestampMs, TopicPartition, WalSegmentId};
use crate::wal_segment::BatchMeta;

/// One change of the state. Later ones replace earlier ones of the same thing.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    Genesis(Genesis),
    /// The kept times of recent positions changed; they are few and are written as a whole.
    TimeMarks,
    Proxy(ProxyId, Box<Incarnation>),
    Pending(String, TimestampMs),
    PendingGone(String),
    Topic(Box<TopicState>),
    Partition(TopicPartition, PartitionState),
    Producer(ProducerKey, ProducerState),
    ProducerExpired(ProducerKey),
    Segment(Arc<CommittedSegment>),
    ClusterVersion(u16),
    Checkpoint(Checkpoint),
}

/// A WAL segment whose commit was applied, also when none of its batches was accepted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommittedSegment {
    pub id: WalSegmentId,
    pub object_size: u64,
    /// Where in the log its commit stands.
    pub position: LogPosition,
    /// Log time of its commit.
    pub committed_at: TimestampMs,
    pub partitions: Vec<CommittedPartition>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommittedPartition {
    pub partition: TopicPartition,
    /// In the order of their bytes, which is that of the commit command.
    pub batches: Vec<CommittedBatch>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommittedBatch {
    pub meta: BatchMeta,
    pub outcome: BatchOutcome,
}

impl CommittedSegment {
    /// The outcome of every batch, in the order of the commit command.
    pub fn outcomes(&self) -> Vec<Vec<BatchOutcome>> {
        self.partitions.iter().map(|p| p.batches.iter().map(|b| b.outcome).collect()).collect()
    }
}
