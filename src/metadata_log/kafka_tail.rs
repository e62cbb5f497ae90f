//! Reads the log in Kafka, in order and without a hole, on a thread of its own.
//!
//! Offsets may be missing where Kafka put something that is no record (transaction markers). A hole is a loss when
//! the log no longer starts below it.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::mpsc;

use super::kafka::{KafkaLogSettings, LogContext, PARTITION};
use super::{GROUP_BYTES, GROUP_RECORDS, LogError, LogRecord, TAIL_IDLE};
use crate::types::LogPosition;

const WATERMARK_TIMEOUT: Duration = Duration::from_secs(5);

type Groups = mpsc::Sender<Result<Vec<LogRecord>, LogError>>;

/// Begins to read at a position; ends when nobody receives any more.
pub(super) fn start(settings: &KafkaLogSettings, from: LogPosition, groups: Groups) -> Result<(), LogError> {
    let reader = Reader { consumer: consumer(settings, from)?, topic: settings.topic.clone(), next: from, groups };
    std::thread::Builder::new()
        .name("metadata-log-tail".to_owned())
        .spawn(move || reader.run())
        .map_err(|error| LogError::Unavailable(error.to_string()))?;
    Ok(())
}

fn consumer(settings: &KafkaLogSettings, from: LogPosition) -> Result<BaseConsumer<LogContext>, LogError> {
    let unavailable = |error: KafkaError| LogError::Unavailable(error.to_string());
    let consumer: BaseConsumer<LogContext> = settings
        .config()
        // librdkafka wants a group name to assign; nothing joins a group or commits an offset.
        .set("group.id", "sidestream-metadata-log")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "error")
        .set("isolation.level", "read_uncommitted")
        .set("check.crcs", "true")
        .set("fetch.wait.max.ms", "100")
        .set("fetch.error.backoff.ms", "50")
        .set("fetch.message.max.bytes", (2 * super::kafka::MAX_RECORD_BYTES).to_string())
        .set("queued.max.messages.kbytes", "32768")
        .create_with_context(LogContext)
        .map_err(unavailable)?;
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset(&settings.topic, PARTITION, Offset::Offset(from.0)).map_err(unavailable)?;
    consumer.assign(&assignment).map_err(unavailable)?;
    Ok(consumer)
}

struct Reader {
    consumer: BaseConsumer<LogContext>,
    topic: String,
    next: LogPosition,
    groups: Groups,
}

impl Reader {
    fn run(mut self) {
        while !self.groups.is_closed() {
            let (group, failed) = self.read_group();
            if !group.is_empty() && self.groups.blocking_send(Ok(group)).is_err() {
                return;
            }
            if let Some(error) = failed {
                let _ = self.groups.blocking_send(Err(error));
                return;
            }
        }
    }

    /// What has come; waits only for the first record.
    fn read_group(&mut self) -> (Vec<LogRecord>, Option<LogError>) {
        let mut group = Vec::new();
        let mut bytes = 0;
        let mut patience = TAIL_IDLE;
        while group.len() < GROUP_RECORDS && bytes < GROUP_BYTES {
            // A message borrows the consumer; the record does not.
            let polled = match self.consumer.poll(patience) {
                None => break,
                Some(Ok(message)) => Ok(record(&message)),
                Some(Err(error)) => Err(error),
            };
            patience = Duration::ZERO;
            match polled {
                Ok(record) => {
                    if let ControlFlow::Break(error) = self.check_position(record.position) {
                        return (group, Some(error));
                    }
                    bytes += record.bytes.len();
                    group.push(record);
                }
                Err(error) if is_loss(&error) => return (group, Some(self.lost())),
                Err(error) => {
                    tracing::warn!(%error, "the metadata log cannot be read at the moment");
                    break;
                }
            }
        }
        (group, None)
    }

    fn check_position(&mut self, got: LogPosition) -> ControlFlow<LogError> {
        let expected = self.next;
        if got != expected {
            let start = match self.consumer.fetch_watermarks(&self.topic, PARTITION, WATERMARK_TIMEOUT) {
                Ok((start, _)) => LogPosition(start),
                Err(error) => return ControlFlow::Break(LogError::Unavailable(error.to_string())),
            };
            if !is_explained(expected, got, start) {
                return ControlFlow::Break(LogError::Lost { expected, got });
            }
        }
        self.next = got.next();
        ControlFlow::Continue(())
    }

    /// The position is outside of the log; says where the log is instead.
    fn lost(&self) -> LogError {
        match self.consumer.fetch_watermarks(&self.topic, PARTITION, WATERMARK_TIMEOUT) {
            Ok((start, end)) => {
                let got = if start > self.next.0 { start } else { end };
                LogError::Lost { expected: self.next, got: LogPosition(got) }
            }
            Err(error) => LogError::Unavailable(error.to_string()),
        }
    }
}

fn record(message: &BorrowedMessage<'_>) -> LogRecord {
    LogRecord {
        position: LogPosition(message.offset()),
        append_time_ms: message.timestamp().to_millis().unwrap_or(0),
        bytes: message.payload().map(Bytes::copy_from_slice).unwrap_or_default(),
    }
}

/// Whether a record after a hole is the next one all the same: the log still starts at or below the hole, so Kafka
/// has nothing in it that is a record.
fn is_explained(expected: LogPosition, got: LogPosition, log_start: LogPosition) -> bool {
    got > expected && log_start <= expected
}

fn is_loss(error: &KafkaError) -> bool {
    matches!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::AutoOffsetReset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_hole_inside_of_the_log_is_explained() {
        let explained =
            |expected, got, start| is_explained(LogPosition(expected), LogPosition(got), LogPosition(start));
        assert!(explained(5, 7, 0));
        assert!(explained(5, 7, 5));
        assert!(!explained(5, 7, 6), "what was there is gone");
        assert!(!explained(5, 4, 0), "the log went back");
    }
}
