//! Where the log in Kafka starts and ends. librdkafka's query blocks, so it has a thread of its own.

use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use tokio::sync::oneshot;

use super::LogError;
use super::kafka::{KafkaLogSettings, LogContext, PARTITION};
use crate::types::LogPosition;

/// Queries that may wait; barriers ask one at a time.
const QUEUE: usize = 64;
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Says which position the log's next record will get.
#[async_trait]
pub trait EndOffset: Send + Sync {
    async fn end(&self) -> Result<LogPosition, LogError>;
}

type Ends = Result<(LogPosition, LogPosition), LogError>;

/// The thread that asks. It ends when this is dropped.
pub(super) struct Watermarks {
    queries: std_mpsc::SyncSender<oneshot::Sender<Ends>>,
}

impl Watermarks {
    pub(super) fn start(settings: &KafkaLogSettings) -> Result<Self, LogError> {
        let unavailable = |error: &dyn std::fmt::Display| LogError::Unavailable(error.to_string());
        // An uncommitted end: a transaction that hangs must not hide records from a barrier.
        let consumer: BaseConsumer<LogContext> = settings
            .config()
            .set("isolation.level", "read_uncommitted")
            .create_with_context(LogContext)
            .map_err(|error| unavailable(&error))?;
        let topic = settings.topic.clone();
        let (queries, queue) = std_mpsc::sync_channel::<oneshot::Sender<Ends>>(QUEUE);
        std::thread::Builder::new()
            .name("metadata-log-end".to_owned())
            .spawn(move || {
                while let Ok(reply) = queue.recv() {
                    let ends = consumer.fetch_watermarks(&topic, PARTITION, QUERY_TIMEOUT);
                    let ends = ends.map(|(start, end)| (LogPosition(start), LogPosition(end)));
                    let _ = reply.send(ends.map_err(|error| LogError::Unavailable(error.to_string())));
                }
            })
            .map_err(|error| unavailable(&error))?;
        Ok(Self { queries })
    }

    /// Start and end of the log.
    pub(super) async fn query(&self) -> Ends {
        let (reply, ends) = oneshot::channel();
        let gone = || LogError::Unavailable("too many queries for the end of the log".to_owned());
        self.queries.try_send(reply).map_err(|_| gone())?;
        ends.await.unwrap_or_else(|_| Err(gone()))
    }
}

#[async_trait]
impl EndOffset for Watermarks {
    async fn end(&self) -> Result<LogPosition, LogError> {
        self.query().await.map(|(_, end)| end)
    }
}
