//! The ordered log of commands that all proxies share.
//!
//! Every record has one position for ever, and every reader sees the same records in the same order. An append has
//! one of three endings: it is in the log, it is not and never will be, or nobody knows yet; who does not know reads
//! on until it shows. Never looks into a record.

mod embedded;
mod kafka;
mod kafka_producer;
mod kafka_tail;
mod kafka_watermarks;
pub mod topic;

use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

pub use crate::diskless_coordinator::encoding::LogRecord;
use crate::types::LogPosition;
pub use embedded::{EmbeddedLog, LogLocation};
pub use kafka::{KafkaLog, KafkaLogSettings};
pub use kafka_watermarks::EndOffset;

/// How an append that did not visibly succeed ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AppendError {
    #[error("the record was not appended: {0}")]
    NotAppended(String),
    #[error("it is not known whether the record was appended: {0}")]
    Unknown(String),
}

/// Why a log cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LogError {
    #[error(
        "the metadata log lost records: {expected} was due, {got} came. Stop all proxies and recover from the object store"
    )]
    Lost { expected: LogPosition, got: LogPosition },
    #[error("the metadata log cannot be reached: {0}")]
    Unavailable(String),
}

/// Resolves when the log has answered an append. To drop it changes nothing: the append goes on.
pub type Appending = BoxFuture<'static, Result<LogPosition, AppendError>>;

/// The records from one position on, in groups as they came.
pub struct Tail {
    pub groups: mpsc::Receiver<Result<Vec<LogRecord>, LogError>>,
}

/// A log. Appends of one caller are in call order.
#[async_trait]
pub trait MetadataLog: Send + Sync {
    /// Queues a record before it returns.
    fn append(&self, record: Vec<u8>) -> Appending;

    /// Makes a new client for appends. What the old one had queued may still come, but nothing after it will.
    fn renew(&self);

    /// Reads from a position on, for as long as the tail is kept.
    fn tail(&self, from: LogPosition) -> Result<Tail, LogError>;

    /// The first position that can be read.
    async fn start(&self) -> Result<LogPosition, LogError>;

    /// The position that the next record will get.
    async fn end(&self) -> Result<LogPosition, LogError>;
}

/// Groups that a tail reads ahead of its reader.
const TAIL_GROUPS: usize = 16;
/// Records in one group.
const GROUP_RECORDS: usize = 1024;
/// Bytes in one group, as soon as it has one record.
const GROUP_BYTES: usize = 4 << 20;
/// How often a tail that has nothing to read looks whether it is still wanted.
const TAIL_IDLE: Duration = Duration::from_millis(100);
