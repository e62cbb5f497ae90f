//! The metadata log as one partition of a topic in upstream, through librdkafka.
//!
//! A delivery error does not say whether the record was persisted, so every one is *unknown*, except for a record
//! that was never queued. The producer is replaced as a whole after an error: to retry inside it could reorder (R10).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;

use super::kafka_producer::LogProducer;
use super::kafka_watermarks::{EndOffset, Watermarks};
use super::{AppendError, Appending, LogError, MetadataLog, TAIL_GROUPS, Tail, kafka_tail};
use crate::types::LogPosition;

/// The topic's only partition.
pub(super) const PARTITION: i32 = 0;
/// A commit of a whole WAL segment fits one record.
pub(super) const MAX_RECORD_BYTES: i32 = 10 << 20;

/// Where the log is, and how to reach it.
#[derive(Clone, PartialEq, Eq)]
pub struct KafkaLogSettings {
    pub bootstrap_servers: String,
    pub topic: String,
    /// Settings of librdkafka for the connection: `security.protocol`, `sasl.*`, `ssl.*`.
    pub client: BTreeMap<String, String>,
}

impl fmt::Debug for KafkaLogSettings {
    /// Without the values of the client's settings: there are passwords among them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaLogSettings")
            .field("bootstrap_servers", &self.bootstrap_servers)
            .field("topic", &self.topic)
            .field("client", &self.client.keys())
            .finish()
    }
}

impl KafkaLogSettings {
    /// What every client of the log has in common.
    pub(super) fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (name, value) in &self.client {
            config.set(name, value);
        }
        config
            .set("bootstrap.servers", &self.bootstrap_servers)
            .set("client.id", "sidestream-metadata-log")
            // librdkafka's producers, admin clients too, would else make a topic that is gone anew, with wrong
            // settings and without its records.
            .set("allow.auto.create.topics", "false")
            .set("socket.nagle.disable", "true")
            .set("socket.keepalive.enable", "true")
            .set("reconnect.backoff.ms", "50")
            .set("reconnect.backoff.max.ms", "1000");
        config
    }
}

/// Sends librdkafka's own words to our log.
#[derive(Clone, Copy)]
pub(super) struct LogContext;

impl ClientContext for LogContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
                tracing::warn!(facility, message, "metadata log client");
            }
            _ => tracing::debug!(facility, message, "metadata log client"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "metadata log client");
    }
}

impl ConsumerContext for LogContext {}

/// A log in Kafka.
pub struct KafkaLog {
    settings: KafkaLogSettings,
    producer: Mutex<LogProducer>,
    watermarks: Arc<Watermarks>,
    end: Arc<dyn EndOffset>,
}

impl KafkaLog {
    /// Makes the clients; connects later.
    pub fn open(settings: KafkaLogSettings) -> Result<Self, LogError> {
        let producer = Mutex::new(new_producer(&settings)?);
        let watermarks = Arc::new(Watermarks::start(&settings)?);
        let end = Arc::clone(&watermarks) as Arc<dyn EndOffset>;
        Ok(Self { settings, producer, watermarks, end })
    }

    /// Asks someone else for the end of the log: librdkafka's own query takes a thread and a connection of its own.
    #[must_use]
    pub fn with_end_offset(mut self, end: Arc<dyn EndOffset>) -> Self {
        self.end = end;
        self
    }
}

fn new_producer(settings: &KafkaLogSettings) -> Result<LogProducer, LogError> {
    let mut config = settings.config();
    config
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("linger.ms", "1")
        .set("message.max.bytes", MAX_RECORD_BYTES.to_string())
        .set("delivery.timeout.ms", "10000")
        .set("request.timeout.ms", "5000")
        .set("retry.backoff.ms", "50")
        .set("queue.buffering.max.kbytes", "65536");
    LogProducer::start(&config)
}

#[async_trait]
impl MetadataLog for KafkaLog {
    fn append(&self, record: Vec<u8>) -> Appending {
        let sent = self.producer.lock().send(&self.settings.topic, PARTITION, &record);
        async move {
            match sent {
                Err(error) => Err(AppendError::NotAppended(error.to_string())),
                Ok(delivery) => match delivery.await {
                    Ok(Ok(position)) => Ok(position),
                    Ok(Err(error)) => Err(AppendError::Unknown(error.to_string())),
                    Err(_) => Err(AppendError::Unknown("the log's client was closed".to_owned())),
                },
            }
        }
        .boxed()
    }

    fn renew(&self) {
        let fresh = match new_producer(&self.settings) {
            Ok(fresh) => fresh,
            Err(error) => {
                tracing::error!(%error, "no new client for the metadata log could be made; the old one is kept");
                return;
            }
        };
        let old = std::mem::replace(&mut *self.producer.lock(), fresh);
        // Both wait for the producer's threads, which may hang for minutes; the caller must not. What still gets out
        // meanwhile is of an epoch that is over.
        let close = move || {
            old.purge();
            drop(old);
        };
        let closing = std::thread::Builder::new().name("metadata-log-close".to_owned()).spawn(close);
        if let Err(error) = closing {
            tracing::warn!(%error, "the old client of the metadata log was closed in place");
        }
    }

    fn tail(&self, from: LogPosition) -> Result<Tail, LogError> {
        let (groups, receiver) = tokio::sync::mpsc::channel(TAIL_GROUPS);
        kafka_tail::start(&self.settings, from, groups)?;
        Ok(Tail { groups: receiver })
    }

    async fn start(&self) -> Result<LogPosition, LogError> {
        self.watermarks.query().await.map(|(start, _)| start)
    }

    async fn end(&self) -> Result<LogPosition, LogError> {
        self.end.end().await
    }
}
