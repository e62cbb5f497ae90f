//! What became of a command. A refusal is an outcome like any other: the same on every proxy.

use serde::{Deserialize, Serialize};

use crate::types::{ErrorCode, LogId, LogPosition, Offset, ProxyId, TimestampMs};

/// The answer to one command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    Opened {
        epoch: LogPosition,
    },
    /// For each partition of the commit, in its order, the outcome of each batch.
    Committed(Vec<Vec<BatchOutcome>>),
    Refused(Refusal),
}

/// Why a command as a whole took no effect.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    #[error(
        "another incarnation of this proxy id opened at position {newer}: two processes run with the same proxy.id, or this one was frozen"
    )]
    Fenced { newer: LogPosition },
    #[error("superseded by a later Open of the same incarnation")]
    Superseded,
    #[error("this incarnation is not open: it was closed or went silent, or never opened")]
    NotOpen,
    #[error("counter {got} where {expected} was due")]
    Counter { expected: u64, got: u64 },
    #[error("the segment is {age_ms} ms old in log time; the commit window is {window_ms} ms")]
    TooOld { age_ms: i64, window_ms: i64 },
    #[error("it quotes another state at position {quoted} than was come to here")]
    Diverged { quoted: LogPosition },
    #[error("it quotes position {quoted}, which is older than what is remembered")]
    Behind { quoted: LogPosition },
    #[error("proxy {proxy} does not know format version {version}")]
    VersionUnknown { version: u16, proxy: ProxyId },
    #[error("the log already begins with log id {log_id}")]
    GenesisExists { log_id: LogId },
    #[error("the log has no Genesis")]
    NoGenesis,
    #[error("the topic is unknown or was deleted")]
    UnknownTopic,
    #[error("the topic name is already taken or pending")]
    TopicExists,
    #[error("the topic name is not pending: it expired, or was never announced")]
    NotPending,
    #[error("not newer than what is applied")]
    Stale,
    #[error("not valid: {0}")]
    Invalid(&'static str),
}

impl Refusal {
    /// The kinds, for metrics.
    pub const KINDS: [&'static str; 15] = [
        "fenced",
        "superseded",
        "not_open",
        "counter",
        "too_old",
        "genesis_exists",
        "no_genesis",
        "unknown_topic",
        "topic_exists",
        "not_pending",
        "stale",
        "invalid",
        "diverged",
        "behind",
        "version_unknown",
    ];

    /// The place of this kind in [`Self::KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            Self::Fenced { .. } => 0,
            Self::Superseded => 1,
            Self::NotOpen => 2,
            Self::Counter { .. } => 3,
            Self::TooOld { .. } => 4,
            Self::GenesisExists { .. } => 5,
            Self::NoGenesis => 6,
            Self::UnknownTopic => 7,
            Self::TopicExists => 8,
            Self::NotPending => 9,
            Self::Stale => 10,
            Self::Invalid(_) => 11,
            Self::Diverged { .. } => 12,
            Self::Behind { .. } => 13,
            Self::VersionUnknown { .. } => 14,
        }
    }
}

/// What became of one batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BatchOutcome {
    Accepted(Placed),
    /// Exactly this batch was accepted before; the offsets are those of the first time.
    Duplicate(Placed),
    Rejected(ErrorCode),
}

/// Where a batch stands in its partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Placed {
    pub base_offset: Offset,
    /// The log's time for it on topics with `message.timestamp.type=LogAppendTime`, else -1.
    pub log_append_time: TimestampMs,
    pub log_start_offset: Offset,
}
