//! What a broker says of itself: the versions it speaks, and the virtual broker's empty or synthetic lists, so that
//! tools that ask every broker work.

use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, DescribeLogDirsRequest, DescribeLogDirsResponse, ListGroupsRequest,
    ListGroupsResponse, ListTransactionsRequest, ListTransactionsResponse, TopicName,
};

use crate::diskless_coordinator::view::Topic;
use crate::kafka_server::answers::Answer;
use crate::kafka_server::authorization::Operation;
use crate::kafka_server::dispatch::{HandleError, Incoming, Reply};
use crate::kafka_server::session::Session;
use crate::types::ErrorCode;
use crate::wire::{StrBytes, api_versions};

/// Kafka's names of the states of a transaction.
const TRANSACTION_STATES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];

pub(crate) fn api_versions(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    if !api_versions::Api::of(api_versions::API_VERSIONS).speaks(request.version()) {
        let frame = api_versions::unsupported_version_answer(request.header.correlation_id);
        return Ok(Reply::Now(Answer::Frame(vec![frame])));
    }
    let asked: ApiVersionsRequest = request.decode()?;
    if !api_versions::is_valid(request.version(), &asked) {
        let refused = ApiVersionsResponse::default().with_error_code(ErrorCode::InvalidRequest.code());
        return request.answer::<ApiVersionsRequest>(&refused);
    }
    session.looks_at_named_replicas =
        looks_at_named_replicas(&asked.client_software_name, &asked.client_software_version);
    let offered = api_versions::intersect(&session.proxy.offered.load());
    let response = api_versions::answer(&offered, request.version());
    request.answer::<ApiVersionsRequest>(&response)
}

/// The client's library, by the name that it gives (KIP-511), reads from the replica that a broker names in an answer to
/// Fetch (KIP-392), also where its user has set no rack; and did so in every version that gave this name.
///
/// A library that does not would ask the leader for ever and get no record. So a name is listed only when that is known:
/// `platformatic-kafka` looks in version 2 and not in version 1, and aiokafka (which gives no name) only with a rack set.
fn looks_at_named_replicas(name: &str, version: &str) -> bool {
    const LISTED: [&str; 4] = ["apache-kafka-java", "librdkafka", "kgo", "sarama"];
    // What is made of librdkafka gives a name of its own and says so in its version.
    LISTED.contains(&name) || version.contains("rdkafka")
}

/// Groups live on the brokers of upstream, each of which is asked as well.
pub(crate) fn list_groups(request: &Incoming) -> Result<Reply, HandleError> {
    request.decode::<ListGroupsRequest>()?;
    request.answer::<ListGroupsRequest>(&ListGroupsResponse::default())
}

/// So do transactions. A state that there is not is named, as every broker names it.
pub(crate) fn list_transactions(request: &Incoming) -> Result<Reply, HandleError> {
    let mut asked: ListTransactionsRequest = request.decode()?;
    asked.state_filters.retain(|state| !TRANSACTION_STATES.contains(&state.as_str()));
    let none = ListTransactionsResponse::default().with_unknown_state_filters(asked.state_filters);
    request.answer::<ListTransactionsRequest>(&none)
}

/// One directory that stands for the object store, with the bytes of each diskless partition that was asked for.
pub(crate) async fn describe_log_dirs(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let asked: DescribeLogDirsRequest = request.decode()?;
    let view = session.proxy.coordination.view();
    let topics = view.topics();
    let named: Vec<(&Topic, Option<Vec<i32>>)> = match &asked.topics {
        None => topics.by_id.values().map(|t| (t.as_ref(), None)).collect(),
        Some(names) => {
            names.iter().filter_map(|t| Some((topics.named(&t.topic)?.as_ref(), Some(t.partitions.clone())))).collect()
        }
    };
    session.learn_rights(&request.client_id(), named.iter().map(|(t, _)| t.name.as_str())).await?;
    let mut listed: Vec<_> = named
        .iter()
        .filter(|(topic, _)| session.may(Operation::Describe, &topic.name, Some(topic.id)).is_ok())
        .map(|(topic, partitions)| log_dirs_topic(topic, partitions.as_deref()))
        .collect();
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    let directory = DescribeLogDirsResult::default()
        .with_log_dir(StrBytes::from_static_str("object-store"))
        .with_topics(listed)
        .with_total_bytes(-1)
        .with_usable_bytes(-1);
    request.answer::<DescribeLogDirsRequest>(&DescribeLogDirsResponse::default().with_results(vec![directory]))
}

fn log_dirs_topic(topic: &Topic, partitions: Option<&[i32]>) -> DescribeLogDirsTopic {
    let wanted = |index: &i32| partitions.is_none_or(|p| p.is_empty() || p.contains(index));
    let partitions = (0i32..).zip(&topic.partitions).filter(|(index, _)| wanted(index)).map(|(index, partition)| {
        let size = i64::try_from(partition.size()).unwrap_or(i64::MAX);
        DescribeLogDirsPartition::default().with_partition_index(index).with_partition_size(size)
    });
    DescribeLogDirsTopic::default()
        .with_name(TopicName::from(StrBytes::from_string(topic.name.clone())))
        .with_partitions(partitions.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_libraries_that_are_known_to_look_at_named_replicas_are_taken_for_such() {
        let cases = [
            ("apache-kafka-java", "4.3.1", true),
            ("librdkafka", "2.16.1", true),
            ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", true),
            ("kgo", "v1.22.3", true),
            ("sarama", "v1.61.1", true),
            ("platformatic-kafka", "1.11.0", false),
            ("platformatic-kafka", "2.12.1", false),
            ("kafka-python", "3.0.12", false),
            ("unknown", "1", false),
            ("", "", false),
        ];
        for (name, version, looks) in cases {
            assert_eq!(looks_at_named_replicas(name, version), looks, "{name} {version}");
        }
    }
}
