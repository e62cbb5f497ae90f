//! What clients ask about the records of a partition: offsets, epochs, producers, deletion.
//!
//! These come to the partition's leader. On a mapped listener a request that names a diskless topic came on old
//! metadata: it is answered "not the leader" as a whole, and the client asks again with fresh metadata.

use std::collections::HashSet;
use std::sync::Arc;

use kafka_protocol::messages::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use kafka_protocol::messages::describe_producers_response::{PartitionResponse, TopicResponse};
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use kafka_protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use kafka_protocol::messages::{
    DeleteRecordsRequest, DeleteRecordsResponse, DescribeProducersRequest, DescribeProducersResponse,
    ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};

use super::fetch::check_leader_epoch;
use crate::diskless_coordinator::view::{PartitionView, Topic, Topics};
use crate::fetch::OffsetSpec;
use crate::fetch::list_offsets::list_offsets as look_up;
use crate::kafka_server::authorization::Operation;
use crate::kafka_server::dispatch::{HandleError, Incoming, Reply};
use crate::kafka_server::session::{Door, Session};
use crate::types::ErrorCode;
use crate::wire::StrBytes;

/// ListOffsets answers carry a leader epoch since this version.
const LEADER_EPOCH_SINCE: i16 = 4;

/// Whether a request on a mapped listener is for classic topics alone.
fn is_classic<'a>(session: &Session, mut topics: impl Iterator<Item = &'a str>) -> bool {
    matches!(session.door, Door::Mapped { .. }) && !topics.any(|name| session.proxy.catalog.is_withheld(name))
}

/// A partition that may be asked about here.
fn partition<'a>(
    session: &Session,
    topics: &'a Topics,
    name: &str,
    index: i32,
    operation: Operation,
) -> Result<(&'a Arc<Topic>, &'a Arc<PartitionView>), ErrorCode> {
    if session.door != Door::VirtualBroker || !session.proxy.serves_diskless() {
        return Err(ErrorCode::NotLeaderOrFollower);
    }
    let topic = topics.named(name).ok_or_else(|| session.not_led_here(operation, name))?;
    session.may(operation, name, Some(topic.id))?;
    let at = usize::try_from(index).ok();
    let view = at.and_then(|i| topic.partitions.get(i)).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    Ok((topic, view))
}

pub(crate) async fn list_offsets(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let asked: ListOffsetsRequest = request.decode()?;
    if is_classic(session, asked.topics.iter().map(|t| t.name.as_str())) {
        return Ok(request.forward());
    }
    session.learn_rights(&request.client_id(), asked.topics.iter().map(|t| t.name.as_str())).await?;
    let topics = Arc::clone(&session.proxy.coordination.view().topics());
    let mut wanted = Vec::new();
    let twice = named_twice(&asked);
    let mut refused = HashSet::new();
    let mut response = ListOffsetsResponse::default();
    for topic in &asked.topics {
        let mut answers = Vec::with_capacity(topic.partitions.len());
        for p in &topic.partitions {
            let named = (topic.name.as_str(), p.partition_index);
            if twice.contains(&named) && !refused.insert(named) {
                // Refused where it was named first.
                continue;
            }
            let found = check_asked(session, &topics, (&topic.name, p), request.version(), twice.contains(&named));
            let mut answer = ListOffsetsPartitionResponse::default()
                .with_partition_index(p.partition_index)
                .with_timestamp(-1)
                .with_offset(-1)
                .with_leader_epoch(-1);
            match found {
                Ok((t, view)) => {
                    if request.version() >= LEADER_EPOCH_SINCE {
                        answer.leader_epoch = t.leader_epoch;
                    }
                    wanted.push((Arc::clone(view), OffsetSpec::from_timestamp(p.timestamp)));
                }
                Err(error) => answer.error_code = error.code(),
            }
            answers.push(answer);
        }
        response
            .topics
            .push(ListOffsetsTopicResponse::default().with_name(topic.name.clone()).with_partitions(answers));
    }
    let freshness = session.proxy.fetch.freshness();
    let mut found = look_up(freshness.as_ref(), session.proxy.fetch.reader(), &wanted).await.into_iter();
    let open = response.topics.iter_mut().flat_map(|t| &mut t.partitions).filter(|p| p.error_code == 0);
    for answer in open {
        let Some(listed) = found.next() else { break };
        answer.error_code = listed.error.code();
        answer.offset = listed.offset;
        answer.timestamp = listed.timestamp;
        if listed.offset < 0 {
            answer.leader_epoch = -1;
        }
    }
    request.answer::<ListOffsetsRequest>(&response)
}

/// The partition, or why its offsets are not listed. As in Kafka, what is wrong with the request comes before what is
/// wrong with the partition.
fn check_asked<'a>(
    session: &Session,
    topics: &'a Topics,
    (name, asked): (&str, &ListOffsetsPartition),
    version: i16,
    is_named_twice: bool,
) -> Result<(&'a Arc<Topic>, &'a Arc<PartitionView>), ErrorCode> {
    let found = partition(session, topics, name, asked.partition_index, Operation::Describe);
    if found.as_ref().err() == Some(&ErrorCode::TopicAuthorizationFailed) {
        return found;
    }
    if is_named_twice {
        return Err(ErrorCode::InvalidRequest);
    }
    check_timestamp(asked.timestamp, version)?;
    let (topic, view) = found?;
    check_leader_epoch(asked.current_leader_epoch, topic.leader_epoch)?;
    Ok((topic, view))
}

/// Partitions that stand in the request more than once.
fn named_twice(asked: &ListOffsetsRequest) -> HashSet<(&str, i32)> {
    let mut once = HashSet::new();
    let all = asked.topics.iter().flat_map(|t| t.partitions.iter().map(|p| (t.name.as_str(), p.partition_index)));
    all.filter(|partition| !once.insert(*partition)).collect()
}

/// Which special timestamps a version knows.
fn check_timestamp(timestamp: i64, version: i16) -> Result<(), ErrorCode> {
    let since = match timestamp {
        0.. | -1 | -2 => 1,
        -3 => 7,
        -4 => 8,
        -5 => 9,
        -6 => 11,
        _ => i16::MAX,
    };
    if version >= since { Ok(()) } else { Err(ErrorCode::UnsupportedVersion) }
}

pub(crate) async fn offset_for_leader_epoch(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let asked: OffsetForLeaderEpochRequest = request.decode()?;
    if is_classic(session, asked.topics.iter().map(|t| t.topic.as_str())) {
        return Ok(request.forward());
    }
    session.learn_rights(&request.client_id(), asked.topics.iter().map(|t| t.topic.as_str())).await?;
    // An end that is too low looks like lost records to the client.
    let fresh = session.proxy.fetch.freshness().proof().await.is_ok();
    let topics = Arc::clone(&session.proxy.coordination.view().topics());
    let mut response = OffsetForLeaderEpochResponse::default();
    for topic in &asked.topics {
        let mut answers = Vec::with_capacity(topic.partitions.len());
        for p in &topic.partitions {
            let found = partition(session, &topics, &topic.topic, p.partition, Operation::Describe)
                .and_then(|(t, view)| check_leader_epoch(p.current_leader_epoch, t.leader_epoch).map(|()| (t, view)))
                .and_then(|found| if fresh { Ok(found) } else { Err(ErrorCode::OffsetNotAvailable) });
            let mut answer =
                EpochEndOffset::default().with_partition(p.partition).with_leader_epoch(-1).with_end_offset(-1);
            match found {
                Ok((t, view)) => (answer.leader_epoch, answer.end_offset) = epoch_end(p.leader_epoch, t, view),
                Err(error) => answer.error_code = error.code(),
            }
            answers.push(answer);
        }
        response
            .topics
            .push(OffsetForLeaderTopicResult::default().with_topic(topic.topic.clone()).with_partitions(answers));
    }
    request.answer::<OffsetForLeaderEpochRequest>(&response)
}

/// The end of an epoch, in a log that has but one (`LeaderEpochFileCache.endOffsetFor`).
fn epoch_end(asked: i32, topic: &Topic, view: &PartitionView) -> (i32, i64) {
    let bounds = view.bounds();
    match asked {
        epoch if epoch == topic.leader_epoch => (epoch, bounds.high_watermark),
        epoch if epoch >= 0 && epoch < topic.leader_epoch => (epoch, bounds.log_start_offset),
        _ => (-1, -1),
    }
}

/// Not built yet for diskless topics; said clearly rather than done on the empty shadow log.
pub(crate) async fn delete_records(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let asked: DeleteRecordsRequest = request.decode()?;
    if is_classic(session, asked.topics.iter().map(|t| t.name.as_str())) {
        return Ok(request.forward());
    }
    session.learn_rights(&request.client_id(), asked.topics.iter().map(|t| t.name.as_str())).await?;
    let topics = Arc::clone(&session.proxy.coordination.view().topics());
    let answer = |topic: &kafka_protocol::messages::delete_records_request::DeleteRecordsTopic| {
        let partitions = topic.partitions.iter().map(|p| {
            let found = partition(session, &topics, &topic.name, p.partition_index, Operation::Delete);
            let error = found.map_or_else(|error| error, |_| ErrorCode::PolicyViolation);
            DeleteRecordsPartitionResult::default()
                .with_partition_index(p.partition_index)
                .with_low_watermark(-1)
                .with_error_code(error.code())
        });
        DeleteRecordsTopicResult::default().with_name(topic.name.clone()).with_partitions(partitions.collect())
    };
    let response = DeleteRecordsResponse::default().with_topics(asked.topics.iter().map(answer).collect());
    request.answer::<DeleteRecordsRequest>(&response)
}

/// Producers of diskless partitions are not listed yet.
pub(crate) async fn describe_producers(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let asked: DescribeProducersRequest = request.decode()?;
    if is_classic(session, asked.topics.iter().map(|t| t.name.as_str())) {
        return Ok(request.forward());
    }
    session.learn_rights(&request.client_id(), asked.topics.iter().map(|t| t.name.as_str())).await?;
    let topics = Arc::clone(&session.proxy.coordination.view().topics());
    let answer = |topic: &kafka_protocol::messages::describe_producers_request::TopicRequest| {
        let partitions = topic.partition_indexes.iter().map(|index| {
            let found = partition(session, &topics, &topic.name, *index, Operation::Read);
            let error = found.map_or_else(|error| error, |_| ErrorCode::PolicyViolation);
            let message = match error {
                ErrorCode::PolicyViolation => Some("the producers of diskless topics cannot be listed yet"),
                // Kafka says this of topics alone.
                ErrorCode::UnknownTopicOrPartition if topics.named(&topic.name).is_none() => {
                    Some("This server does not host this topic-partition.")
                }
                _ => None,
            };
            PartitionResponse::default()
                .with_partition_index(*index)
                .with_error_code(error.code())
                .with_error_message(message.map(StrBytes::from_static_str))
        });
        TopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions.collect())
    };
    let response = DescribeProducersResponse::default().with_topics(asked.topics.iter().map(answer).collect());
    request.answer::<DescribeProducersRequest>(&response)
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::list_offsets_request::ListOffsetsTopic;

    use super::*;

    #[test]
    fn partitions_named_twice_are_found_across_topics() {
        let partition = |index| ListOffsetsPartition::default().with_partition_index(index);
        let topic = |name, partitions| {
            let name = kafka_protocol::messages::TopicName::from(StrBytes::from_static_str(name));
            ListOffsetsTopic::default().with_name(name).with_partitions(partitions)
        };
        let asked = ListOffsetsRequest::default().with_topics(vec![
            topic("a", vec![partition(0), partition(1)]),
            topic("b", vec![partition(1), partition(1)]),
            topic("a", vec![partition(0)]),
        ]);
        assert_eq!(named_twice(&asked), HashSet::from([("a", 0), ("b", 1)]));
    }

    #[test]
    fn special_timestamps_came_with_versions() {
        for (timestamp, version, known) in [
            (0, 1, true),
            (-1, 1, true),
            (-3, 6, false),
            (-3, 7, true),
            (-5, 8, false),
            (-6, 10, false),
            (-7, 11, false),
        ] {
            assert_eq!(check_timestamp(timestamp, version).is_ok(), known, "{timestamp} in version {version}");
        }
    }
}
