//! What the proxy asks the upstream cluster for itself: topics, offsets, configs.
//!
//! Answers are given as upstream gave them, error codes and all; only the transport's failures are errors here.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, CreateTopicsResponse, DescribeAclsRequest, DescribeAclsResponse,
    DescribeClusterRequest, DescribeClusterResponse, DescribeConfigsRequest, ListOffsetsRequest, MetadataRequest,
    MetadataResponse, TopicName,
};

use super::cluster_view::ClusterView;
use super::connection::UpstreamError;
use crate::types::{Offset, TimestampMs, TopicId};
use crate::wire::StrBytes;

/// Kafka's resource type of topics.
const TOPIC_RESOURCE: i8 = 2;
/// The first Metadata version that finds topics by id.
const TOPIC_ID_METADATA_VERSION: i16 = 12;

/// What a leader said about one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedOffset {
    pub partition: i32,
    pub error_code: i16,
    pub offset: Offset,
    pub timestamp: TimestampMs,
    pub leader_epoch: i32,
}

/// The configs of one topic: all of them, or the error code of the whole topic.
pub type TopicConfigs = Result<BTreeMap<String, Option<String>>, i16>;

impl ClusterView {
    /// Metadata of the topics with these names. Never creates a topic.
    pub async fn metadata_by_names(&self, names: &[&str]) -> Result<MetadataResponse, UpstreamError> {
        let topic = |name: &&str| MetadataRequestTopic::default().with_name(Some(topic_name(name)));
        self.metadata(Some(names.iter().map(topic).collect()), 4).await
    }

    /// Metadata of the topics with these ids.
    pub async fn metadata_by_ids(&self, ids: &[TopicId]) -> Result<MetadataResponse, UpstreamError> {
        let topic = |id: &TopicId| MetadataRequestTopic::default().with_name(None).with_topic_id((*id).into());
        self.metadata(Some(ids.iter().map(topic).collect()), TOPIC_ID_METADATA_VERSION).await
    }

    /// Metadata of every topic that the proxy may see.
    pub async fn metadata_of_all_topics(&self) -> Result<MetadataResponse, UpstreamError> {
        self.metadata(None, 4).await
    }

    /// Older versions than 4 create missing topics.
    async fn metadata(
        &self,
        topics: Option<Vec<MetadataRequestTopic>>,
        lowest_version: i16,
    ) -> Result<MetadataResponse, UpstreamError> {
        let connection = self.any().await?;
        let version = connection.highest_version::<MetadataRequest>(TOPIC_ID_METADATA_VERSION)?;
        if version < lowest_version {
            return Err(connection.not_sent(format!("Metadata is offered up to version {version} only")));
        }
        let request = MetadataRequest::default().with_topics(topics).with_allow_auto_topic_creation(false);
        let metadata = connection.request(&request, version).await?;
        self.learn(&metadata);
        Ok(metadata)
    }

    /// Asks the leader of these partitions for offsets by timestamp (-1 the end, -2 the start), read_uncommitted.
    pub async fn list_offsets(
        &self,
        leader: i32,
        topic: &str,
        partitions: &[i32],
        timestamp: TimestampMs,
    ) -> Result<Vec<ListedOffset>, UpstreamError> {
        let connection = self.broker(leader).await?;
        let partition =
            |index: &i32| ListOffsetsPartition::default().with_partition_index(*index).with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(partitions.iter().map(partition).collect());
        let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
        let version = connection.highest_version::<ListOffsetsRequest>(8)?;
        let response = connection.request(&request, version).await?;
        let listed = response.topics.iter().flat_map(|topic| &topic.partitions).map(|partition| ListedOffset {
            partition: partition.partition_index,
            error_code: partition.error_code,
            offset: partition.offset,
            timestamp: partition.timestamp,
            leader_epoch: partition.leader_epoch,
        });
        Ok(listed.collect())
    }

    /// All configs of these topics, defaults included.
    pub async fn describe_topic_configs(
        &self,
        topics: &[&str],
    ) -> Result<BTreeMap<String, TopicConfigs>, UpstreamError> {
        let resource = |name: &&str| {
            DescribeConfigsResource::default()
                .with_resource_type(TOPIC_RESOURCE)
                .with_resource_name(StrBytes::from_string((*name).to_owned()))
                .with_configuration_keys(None)
        };
        let connection = self.any().await?;
        let request = DescribeConfigsRequest::default().with_resources(topics.iter().map(resource).collect());
        let version = connection.highest_version::<DescribeConfigsRequest>(4)?;
        let response = connection.request(&request, version).await?;
        let described = response.results.into_iter().map(|result| {
            let configs = result.configs.iter();
            let configs = configs.map(|c| (c.name.to_string(), c.value.as_ref().map(|value| value.to_string())));
            let answer = if result.error_code == 0 { Ok(configs.collect()) } else { Err(result.error_code) };
            (result.resource_name.to_string(), answer)
        });
        Ok(described.collect())
    }

    /// Creates topics through the controller.
    pub async fn create_topics(&self, request: &CreateTopicsRequest) -> Result<CreateTopicsResponse, UpstreamError> {
        let connection = self.controller().await?;
        let version = connection.highest_version::<CreateTopicsRequest>(7)?;
        connection.request(request, version).await
    }

    pub async fn describe_cluster(&self) -> Result<DescribeClusterResponse, UpstreamError> {
        let connection = self.any().await?;
        let version = connection.highest_version::<DescribeClusterRequest>(1)?;
        connection.request(&DescribeClusterRequest::default(), version).await
    }
}

/// Who may write to topics, by the cluster's ACLs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TopicWriters {
    /// The cluster has no authorizer: everyone may.
    NoAuthorizer,
    /// The ACLs that allow it.
    Allowed(Vec<WriteAcl>),
}

/// One ACL that allows writing to topics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteAcl {
    pub topic: String,
    pub principal: String,
    /// `*` means from everywhere.
    pub host: String,
}

const ACL_VERSION: i16 = 3;
/// Codes of `AclOperation`, `AclPermissionType` and `PatternType`.
const OPERATION_ANY: i8 = 1;
const OPERATION_ALL: i8 = 2;
const OPERATION_WRITE: i8 = 4;
const PERMISSION_ALLOW: i8 = 3;
const PATTERN_ANY: i8 = 1;
/// `SECURITY_DISABLED`
const NO_AUTHORIZER: i16 = 54;

impl ClusterView {
    /// Needs DESCRIBE on the cluster; the error code otherwise.
    pub async fn topic_writers(&self) -> Result<Result<TopicWriters, i16>, UpstreamError> {
        let connection = self.any().await?;
        let request = DescribeAclsRequest::default()
            .with_resource_type_filter(TOPIC_RESOURCE)
            .with_pattern_type_filter(PATTERN_ANY)
            .with_operation(OPERATION_ANY)
            .with_permission_type(PERMISSION_ALLOW);
        let version = connection.highest_version::<DescribeAclsRequest>(ACL_VERSION)?;
        let response = connection.request(&request, version).await?;
        Ok(match response.error_code {
            0 => Ok(TopicWriters::Allowed(write_acls(&response))),
            NO_AUTHORIZER => Ok(TopicWriters::NoAuthorizer),
            code => Err(code),
        })
    }
}

fn write_acls(response: &DescribeAclsResponse) -> Vec<WriteAcl> {
    let mut found = Vec::new();
    for resource in &response.resources {
        let writes = resource.acls.iter().filter(|acl| matches!(acl.operation, OPERATION_WRITE | OPERATION_ALL));
        found.extend(writes.map(|acl| WriteAcl {
            topic: resource.resource_name.to_string(),
            principal: acl.principal.to_string(),
            host: acl.host.to_string(),
        }));
    }
    found
}

fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}
