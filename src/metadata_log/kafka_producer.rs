//! A producer of librdkafka with a thread that takes its delivery reports.
//!
//! `FutureProducer` of crate `rdkafka` would do the same, but asks for events ten times a second and spins for up to a
//! millisecond each time, which was most of what an idle proxy used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext, PurgeConfig};
use tokio::sync::oneshot;

use super::LogError;
use super::kafka::LogContext;
use crate::types::LogPosition;

/// Where a record went, or what librdkafka says went wrong.
pub(super) type Delivery = Result<LogPosition, KafkaError>;

/// Reports come at once, whatever this is; it is how soon the thread notices that it shall end.
const POLL: Duration = Duration::from_millis(500);

pub(super) struct LogProducer {
    client: Arc<BaseProducer<Deliveries>>,
    is_stopped: Arc<AtomicBool>,
    poller: Option<JoinHandle<()>>,
}

struct Deliveries;

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        LogContext.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        LogContext.error(error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<oneshot::Sender<Delivery>>;

    fn delivery(&self, result: &DeliveryResult<'_>, waiting: Self::DeliveryOpaque) {
        let delivery = match result {
            Ok(message) => Ok(LogPosition(message.offset())),
            Err((error, _)) => Err(error.clone()),
        };
        // Whoever appended may not wait for it.
        let _ = waiting.send(delivery);
    }
}

impl LogProducer {
    pub(super) fn start(config: &ClientConfig) -> Result<Self, LogError> {
        let unavailable = |error: &dyn std::fmt::Display| LogError::Unavailable(error.to_string());
        let client: BaseProducer<Deliveries> =
            config.create_with_context(Deliveries).map_err(|error| unavailable(&error))?;
        let client = Arc::new(client);
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (polled, stop) = (Arc::clone(&client), Arc::clone(&is_stopped));
        let poll = move || {
            while !stop.load(Ordering::Acquire) {
                polled.poll(POLL);
            }
        };
        let poller = std::thread::Builder::new().name("metadata-log".to_owned()).spawn(poll);
        Ok(Self { client, is_stopped, poller: Some(poller.map_err(|error| unavailable(&error))?) })
    }

    /// Queues a record. What comes back resolves with its delivery, or breaks off with the producer.
    pub(super) fn send(
        &self,
        topic: &str,
        partition: i32,
        record: &[u8],
    ) -> Result<oneshot::Receiver<Delivery>, KafkaError> {
        let (waiting, delivery) = oneshot::channel();
        let record: BaseRecord<'_, (), [u8], _> =
            BaseRecord::with_opaque_to(topic, Box::new(waiting)).partition(partition).payload(record);
        self.client.send(record).map(|()| delivery).map_err(|(error, _)| error)
    }

    /// Gives up what is queued and what is on its way: each such record has its delivery fail.
    pub(super) fn purge(&self) {
        self.client.purge(PurgeConfig::default().queue().inflight());
    }
}

impl Drop for LogProducer {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Release);
        if let Some(poller) = self.poller.take() {
            let _ = poller.join();
        }
    }
}
