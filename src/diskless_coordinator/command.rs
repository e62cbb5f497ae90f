//! What proxies ask of the log. A command takes effect when it is applied, and every proxy decides alike.

use serde::{Deserialize, Serialize};

use super::rules::agreement::Checkpoint;
use crate::types::{Endpoint, LogId, LogPosition, Offset, ProxyId, Rack, TimestampMs, TopicId, WalSegmentId};
use crate::wal_segment::PartitionBatches;

/// One record of the metadata log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proposal {
    pub proposer: Proposer,
    pub command: Command,
}

/// Who appended a command, in which incarnation, as its how-manieth, and when by its own clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proposer {
    pub proxy: ProxyId,
    /// The position of the `Open` that began this incarnation; `LogPosition::NONE` in `Genesis` and `Open`.
    pub epoch: LogPosition,
    /// 1, 2, 3... within the epoch: `apply` refuses anything but last + 1 (R10). 0 in `Genesis` and `Open`.
    pub counter: u64,
    pub wall_time: TimestampMs,
    /// The last checkpoint that the proposer had come to (R8).
    pub quoted: Checkpoint,
}

/// A command. The order of the variants and of their fields is the format (see [`super::encoding`]): add at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// The log's first record (R1).
    Genesis {
        log_id: LogId,
        upstream_cluster_id: String,
        metadata_topic_id: TopicId,
    },
    /// Begins an incarnation of a proxy. Idempotent per nonce (R10).
    Open {
        nonce: [u8; 16],
        zone: Rack,
        endpoint: Endpoint,
        min_version: u16,
        max_version: u16,
    },
    Heartbeat,
    /// Ends an incarnation at shutdown (R12).
    Close,
    /// Changes nothing; whoever reads it back has seen all that came before.
    Barrier,
    CommitSegment(CommitSegment),
    /// A topic of this name is about to be created upstream as diskless (R5).
    PendingTopic {
        name: String,
    },
    /// The creation failed: the name is free again.
    PendingTopicDropped {
        name: String,
    },
    RegisterTopic {
        name: String,
        topic_id: TopicId,
        partitions: i32,
        leader_epoch: i32,
        config: TopicConfig,
    },
    TopicDeleted {
        topic_id: TopicId,
    },
    PartitionsCreated {
        topic_id: TopicId,
        partitions: i32,
    },
    /// The topic's configuration upstream, read as a whole (R9). Older versions are refused.
    TopicConfigChanged {
        topic_id: TopicId,
        config: TopicConfig,
    },
    /// From here on records may be written in this version of the format (R12).
    SetClusterVersion {
        version: u16,
    },
}

/// Says that a WAL segment is durable and asks for offsets for its batches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommitSegment {
    pub segment: WalSegmentId,
    /// Size of the whole object in bytes.
    pub object_size: u64,
    pub partitions: Vec<PartitionBatches>,
}

/// The settings of a diskless topic that decide something here. They come from its shadow topic.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TopicConfig {
    /// Grows with every change that is proposed; `apply` refuses one that is not newer.
    pub version: u64,
    pub log_append_time: bool,
    pub max_message_bytes: i32,
    /// `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms`.
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
    pub retention_ms: i64,
    pub retention_bytes: i64,
}

impl Default for TopicConfig {
    /// Kafka's defaults.
    fn default() -> Self {
        Self {
            version: 0,
            log_append_time: false,
            max_message_bytes: 1_048_588,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            retention_ms: 604_800_000,
            retention_bytes: -1,
        }
    }
}

/// The least offset that exists in any partition.
pub const FIRST_OFFSET: Offset = 0;
