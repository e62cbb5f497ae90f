//! What upstream says of topics, asked with the proxy's own credential.

use std::collections::BTreeMap;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::{MetadataRequest, MetadataResponse};

use crate::types::{ErrorCode, Offset, TopicId};
use crate::upstream::{ClusterView, UpstreamError};
use crate::wire::StrBytes;

/// The end of a log.
const LATEST_TIMESTAMP: i64 = -1;

/// A topic as upstream has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShadowTopic {
    pub id: TopicId,
    pub partitions: usize,
}

/// A question that got no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ShadowError {
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    #[error("partition {partition} of {topic:?} has no leader yet")]
    NoLeader { topic: String, partition: i32 },
    #[error("the leader of {topic:?} answered with error code {code}")]
    Refused { topic: String, code: i16 },
}

fn found(response: &MetadataResponse, is_it: impl Fn(&MetadataResponseTopic) -> bool) -> Option<ShadowTopic> {
    let topic = response.topics.iter().find(|t| t.error_code == 0 && is_it(t))?;
    Some(ShadowTopic { id: topic.topic_id.into(), partitions: topic.partitions.len() })
}

fn is_named(topic: &MetadataResponseTopic, name: &str) -> bool {
    topic.name.as_ref().is_some_and(|n| n.as_str() == name)
}

/// The topic of this name, if there is one.
pub async fn topic(cluster: &ClusterView, name: &str) -> Result<Option<ShadowTopic>, ShadowError> {
    let response = cluster.metadata_by_names(&[name]).await?;
    Ok(found(&response, |t| is_named(t, name)))
}

/// Topics of these names, by id. Those that are missing or broken are left out.
pub(super) async fn topics(cluster: &ClusterView, names: &[&str]) -> Result<BTreeMap<TopicId, usize>, ShadowError> {
    let response = cluster.metadata_by_names(names).await?;
    let good = response.topics.iter().filter(|t| t.error_code == 0);
    Ok(good.map(|t| (TopicId::from(t.topic_id), t.partitions.len())).collect())
}

/// The end of each partition's log, from its leader.
pub async fn log_ends(cluster: &ClusterView, name: &str, partitions: usize) -> Result<Vec<Offset>, ShadowError> {
    let response = cluster.metadata_by_names(&[name]).await?;
    let leaders: BTreeMap<i32, i32> = response
        .topics
        .iter()
        .filter(|t| is_named(t, name))
        .flat_map(|t| &t.partitions)
        .filter(|p| *p.leader_id >= 0)
        .map(|p| (p.partition_index, *p.leader_id))
        .collect();
    let mut by_leader: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for partition in (0i32..).take(partitions) {
        let leader = leaders.get(&partition);
        let leader = *leader.ok_or_else(|| ShadowError::NoLeader { topic: name.to_owned(), partition })?;
        by_leader.entry(leader).or_default().push(partition);
    }
    let mut ends = vec![0; partitions];
    for (leader, led) in by_leader {
        for listed in cluster.list_offsets(leader, name, &led, LATEST_TIMESTAMP).await? {
            if listed.error_code != 0 {
                return Err(ShadowError::Refused { topic: name.to_owned(), code: listed.error_code });
            }
            if let Some(end) = usize::try_from(listed.partition).ok().and_then(|p| ends.get_mut(p)) {
                *end = listed.offset;
            }
        }
    }
    Ok(ends)
}

/// R4: whether every broker says explicitly that there is no topic of this name and none of this id. An error means
/// that not all could be asked, or that one of them may know the topic: that proves nothing.
pub(super) async fn is_gone_everywhere(cluster: &ClusterView, id: TopicId, name: &str) -> Result<bool, ShadowError> {
    let brokers: Vec<i32> = cluster.cluster().brokers.keys().copied().collect();
    if brokers.is_empty() {
        return Ok(false);
    }
    for broker in brokers {
        let connection = cluster.broker(broker).await?;
        let version = connection.highest_version::<MetadataRequest>(12)?;
        let by_name = MetadataRequestTopic::default().with_name(Some(StrBytes::from_string(name.to_owned()).into()));
        let by_id = MetadataRequestTopic::default().with_name(None).with_topic_id(id.into());
        for (asked, expected) in [(by_name, ErrorCode::UnknownTopicOrPartition), (by_id, ErrorCode::UnknownTopicId)] {
            let request =
                MetadataRequest::default().with_topics(Some(vec![asked])).with_allow_auto_topic_creation(false);
            let response = connection.request(&request, version).await?;
            let is_gone = response.topics.len() == 1 && response.topics.iter().all(|t| t.error_code == expected.code());
            // A topic that was created again under the name has another id: the old one is gone all the same.
            let is_replaced = expected == ErrorCode::UnknownTopicOrPartition
                && response.topics.iter().all(|t| t.error_code == 0 && TopicId::from(t.topic_id) != id);
            if !is_gone && !is_replaced {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
