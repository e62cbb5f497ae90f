//! Produce: validates each batch as a broker does, and takes those of diskless partitions in.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::clock::wall_time_ms;
use crate::config::IdempotencePolicy;
use crate::diskless_coordinator::view::{Topic, Topics};
use crate::kafka_server::answers::Answer;
use crate::kafka_server::authorization::Operation;
use crate::kafka_server::dispatch::{HandleError, Incoming, Reply};
use crate::kafka_server::session::{Door, Session};
use crate::produce::{BatchResult, BatchToAppend};
use crate::record_batch::{BatchHeader, CompressionType, InvalidBatch, Limits, validate};
use crate::types::{ErrorCode, TopicPartition};
use crate::wire::produce_request::{ProducePartition, ProduceRequest, ProduceTopic};
use crate::wire::produce_response::{ProducePartitionResponse, ProduceResponse, ProduceTopicResponse};

pub(crate) async fn produce(session: &mut Session, request: Incoming) -> Result<Reply, HandleError> {
    let asked = ProduceRequest::read(request.version(), &request.body())?;
    let client_id = request.client_id();
    session.learn_rights(&client_id, asked.topics.iter().map(|t| t.name.as_str())).await?;
    let mut taken = take_in(session, &asked, request.version(), &client_id);
    let acks = asked.acks;
    if taken.batches.is_empty() {
        return Ok(Reply::Now(answer(&request, acks, taken.response)));
    }
    part_from_frame(&mut taken.batches, request.frame.len());
    // All of it is held until it is answered.
    let reservation = session.proxy.produce.reserve(request.frame.len()).await;
    let results = session.proxy.produce.append(std::mem::take(&mut taken.batches), reservation);
    Ok(Reply::Later(Box::pin(async move {
        let results = results.await;
        taken.fill_in(&results);
        answer(&request, acks, taken.response)
    })))
}

/// The zone cache keeps batches long after their request, and counts their own bytes. Where most of a frame is something
/// else, they must not keep it.
fn part_from_frame(batches: &mut [BatchToAppend], frame_bytes: usize) {
    if batches.iter().map(|batch| batch.bytes.len()).sum::<usize>() < frame_bytes / 2 {
        batches.iter_mut().for_each(|batch| batch.bytes = Bytes::copy_from_slice(&batch.bytes));
    }
}

/// acks=0 has no answer; where something was refused, the end of the connection tells the client.
fn answer(request: &Incoming, acks: i16, response: ProduceResponse) -> Answer {
    if acks == 0 {
        let refused = response.topics.iter().flat_map(|t| &t.partitions).find(|p| p.error != ErrorCode::None);
        let Some(refused) = refused else { return Answer::Nothing };
        let reason = refused.error_message.as_deref().unwrap_or("the batch was refused");
        tracing::warn!(error = ?refused.error, reason, "closed the connection of a producer with acks=0, which cannot be told");
        return Answer::Close;
    }
    Answer::Frame(vec![response.encode(request.header.correlation_id, request.version())])
}

/// A request's batches that go to the service, and the answer with what is decided already.
struct Taken {
    batches: Vec<BatchToAppend>,
    /// Where in the answer each batch's outcome belongs.
    places: Vec<(usize, usize)>,
    response: ProduceResponse,
}

impl Taken {
    fn fill_in(&mut self, results: &[BatchResult]) {
        for ((topic, partition), result) in self.places.iter().zip(results) {
            let place = &mut self.response.topics[*topic].partitions[*partition];
            match result {
                Ok(placed) => {
                    place.error = ErrorCode::None;
                    place.base_offset = placed.base_offset;
                    place.log_append_time_ms = placed.log_append_time;
                    place.log_start_offset = placed.log_start_offset;
                }
                Err(rejected) => {
                    place.error = rejected.code;
                    place.error_message = Some(rejected.message.to_owned());
                }
            }
        }
    }
}

/// Consumers that fetch in versions of the time before cannot read zstd (KIP-110).
const ZSTD_SINCE: i16 = 7;

/// Why a partition's records are not taken.
struct NotTaken(ErrorCode, Option<String>);

impl NotTaken {
    fn because(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(code, Some(message.into()))
    }
}

fn take_in(session: &Session, asked: &ProduceRequest, version: i16, client_id: &str) -> Taken {
    let topics = session.proxy.coordination.view().topics();
    let mut taken = Taken { batches: Vec::new(), places: Vec::new(), response: ProduceResponse::default() };
    let now = wall_time_ms();
    for (at, topic) in asked.topics.iter().enumerate() {
        let known = check_topic(session, &topics, asked, topic);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (number, partition) in topic.partitions.iter().enumerate() {
            let checked = match &known {
                Ok(topic) => check_batch(session, topic, partition, version, now),
                Err(NotTaken(code, message)) => Err(NotTaken(*code, message.clone())),
            };
            let (error, message) = match checked {
                Ok(batch) => {
                    count(session, &topic.name, &batch);
                    taken.places.push((at, number));
                    taken.batches.push(batch);
                    (ErrorCode::None, None)
                }
                Err(NotTaken(error, message)) => (error, message),
            };
            if error == ErrorCode::PolicyViolation {
                warn_of_policy(session, client_id, &topic.name, message.as_deref());
            }
            partitions.push(ProducePartitionResponse::refused(partition.index, error, message));
        }
        taken.response.topics.push(ProduceTopicResponse { name: topic.name.clone(), partitions });
    }
    taken
}

/// Some clients drop the message of a refusal, so the log has it as well.
fn warn_of_policy(session: &Session, client_id: &str, topic: &str, message: Option<&str>) {
    session.proxy.stats.produce_refused_total.fetch_add(1, Ordering::Relaxed);
    tracing::warn!(client_id, topic, reason = message.unwrap_or_default(), "refused records of a producer");
}

fn count(session: &Session, topic: &str, batch: &BatchToAppend) {
    let counted = session.proxy.stats.topic(topic);
    counted.produced_bytes.fetch_add(batch.bytes.len() as u64, Ordering::Relaxed);
    counted.produced_records.fetch_add(u64::from(batch.header.records_count.unsigned_abs()), Ordering::Relaxed);
}

/// What can be said of a topic before its batches are looked at.
fn check_topic(
    session: &Session,
    topics: &Topics,
    asked: &ProduceRequest,
    topic: &ProduceTopic,
) -> Result<Arc<Topic>, NotTaken> {
    if session.door != Door::VirtualBroker || !session.proxy.serves_diskless() {
        return Err(NotTaken(ErrorCode::NotLeaderOrFollower, None));
    }
    let Some(known) = topics.named(&topic.name) else {
        return Err(NotTaken(session.not_led_here(Operation::Write, &topic.name), None));
    };
    session.may(Operation::Write, &topic.name, Some(known.id)).map_err(|code| NotTaken(code, None))?;
    if !matches!(asked.acks, -1..=1) {
        return Err(NotTaken(ErrorCode::InvalidRequiredAcks, None));
    }
    if asked.transactional_id.is_some() {
        return Err(NotTaken::because(
            ErrorCode::PolicyViolation,
            "transactions are not supported on diskless topics: produce without transactional.id, or use a topic without diskless.enable",
        ));
    }
    Ok(Arc::clone(known))
}

fn check_batch(
    session: &Session,
    topic: &Topic,
    partition: &ProducePartition,
    version: i16,
    now: i64,
) -> Result<BatchToAppend, NotTaken> {
    let index = partition.index;
    if usize::try_from(index).ok().is_none_or(|i| i >= topic.partitions.len()) {
        return Err(NotTaken(ErrorCode::UnknownTopicOrPartition, None));
    }
    let limits = Limits {
        max_message_bytes: topic.config.max_message_bytes,
        timestamp_before_max_ms: topic.config.timestamp_before_max_ms,
        timestamp_after_max_ms: topic.config.timestamp_after_max_ms,
        log_append_time: topic.config.log_append_time,
        now,
    };
    let bytes = partition.records.clone().unwrap_or_default();
    let header = validate(&bytes, &limits).map_err(|invalid| match invalid {
        InvalidBatch::Refused { code, message } => NotTaken::because(code, message),
        InvalidBatch::Transactional => NotTaken::because(ErrorCode::PolicyViolation, invalid.to_string()),
    })?;
    if version < ZSTD_SINCE && header.compression_type() == Some(CompressionType::Zstd) {
        return Err(NotTaken(ErrorCode::UnsupportedCompressionType, None));
    }
    check_idempotence(session, &header)?;
    Ok(BatchToAppend { partition: TopicPartition { topic_id: topic.id, partition: index }, header, bytes })
}

/// The answer to a commit can be lost; only an idempotent producer can then send again without making duplicates.
fn check_idempotence(session: &Session, header: &BatchHeader) -> Result<(), NotTaken> {
    if header.is_idempotent() || session.proxy.config.diskless.idempotence == IdempotencePolicy::Warn {
        return Ok(());
    }
    Err(NotTaken::because(
        ErrorCode::PolicyViolation,
        "diskless topics need an idempotent producer: set enable.idempotence=true and acks=all in the producer (or diskless.idempotence=\"warn\" in the proxy, which risks duplicates)",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_batch::testing::BatchBuilder;
    use crate::types::TopicId;

    #[test]
    fn a_batch_keeps_its_frame_only_where_it_is_most_of_it() {
        let bytes = BatchBuilder::new().build();
        let header = BatchHeader::parse(&bytes).expect("valid");
        let partition = TopicPartition { topic_id: TopicId([1; 16]), partition: 0 };
        let keeps = |frame_bytes| {
            let mut batches = [BatchToAppend { partition, header, bytes: bytes.clone() }];
            part_from_frame(&mut batches, frame_bytes);
            assert_eq!(batches[0].bytes, bytes);
            batches[0].bytes.as_ptr() == bytes.as_ptr()
        };
        assert!(keeps(bytes.len() + 40));
        assert!(!keeps(64 * 1024));
    }
}
