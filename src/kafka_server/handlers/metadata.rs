//! Which brokers there are and who leads what, with every address ours.
//!
//! Upstream is always asked in a version that gives topic ids, whatever the client speaks: kinds go by id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::{
    DescribeClusterRequest, DescribeTopicPartitionsRequest, FindCoordinatorRequest, MetadataRequest, MetadataResponse,
    TopicName,
};

use super::topics::auto_create;
use crate::kafka_server::dispatch::{HandleError, Incoming, Reply};
use crate::kafka_server::session::{CallError, Session};
use crate::routing::address_view::{AddressView, virtual_brokers};
use crate::routing::placement::Placement;
use crate::topic_catalog::Kind;
use crate::types::{Endpoint, ErrorCode, TopicId};

pub(crate) async fn metadata(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let mut asked: MetadataRequest = request.decode()?;
    if request.version() == 0 && asked.topics.as_ref().is_some_and(Vec::is_empty) {
        // In version 0 an empty list means all topics.
        asked.topics = None;
    }
    let lists_all = asked.topics.is_none();
    let mut response = ask(session, &request.client_id(), asked).await?;
    hide(session, &mut response.topics, lists_all).await;
    let brokers = response.brokers.iter().map(|b| *b.node_id).collect();
    let addresses = address_view(session, brokers).await;
    // A broker whose port cannot be opened cannot be reached; clients are told of the others.
    response.brokers.retain(|b| addresses.mapped.contains_key(&b.node_id));
    // Taken after the topics were classified, so that none of them is newer than this list.
    let topics = Arc::clone(&session.proxy.coordination.view().topics());
    addresses.rewrite_metadata(&mut response, topics.as_ref()).map_err(|_| CallError::Lost)?;
    request.answer::<MetadataRequest>(&response)
}

/// Asks upstream; topics that would be created as diskless are created by us first.
async fn ask(
    session: &mut Session,
    client_id: &str,
    mut asked: MetadataRequest,
) -> Result<MetadataResponse, HandleError> {
    // The rights on the cluster can be asked for up to version 10, which is the first that gives topic ids.
    let most = if asked.include_cluster_authorized_operations { 10 } else { 12 };
    let version = session.version_of::<MetadataRequest>(most)?;
    let wanted_auto = asked.allow_auto_topic_creation;
    let ours: BTreeSet<String> = asked
        .topics
        .iter()
        .flatten()
        .filter_map(|t| t.name.as_ref())
        .filter(|n| wanted_auto && session.proxy.config.diskless.matches(n))
        .map(|n| n.as_str().to_owned())
        .collect();
    if !ours.is_empty() {
        asked.allow_auto_topic_creation = false;
    }
    let response = session.call(version, client_id, &asked).await?;
    let is_missing = |t: &&MetadataResponseTopic| t.error_code == ErrorCode::UnknownTopicOrPartition.code();
    let name = |t: &MetadataResponseTopic| t.name.as_ref().map(|n| n.as_str().to_owned());
    let missing: Vec<String> =
        response.topics.iter().filter(is_missing).filter_map(name).filter(|n| ours.contains(n)).collect();
    let others_missing = response.topics.iter().filter(is_missing).filter_map(name).any(|n| !ours.contains(&n));
    let was_withheld = others_missing && !ours.is_empty();
    if missing.is_empty() && !was_withheld {
        return Ok(response);
    }
    auto_create(session, client_id, &missing).await?;
    // Now that ours exist, upstream may create the rest. One of ours that could not be created must not become
    // classic this way.
    let again = session.call(version, client_id, &asked).await?;
    let all_exist = !again.topics.iter().filter(is_missing).filter_map(name).any(|n| ours.contains(&n));
    if others_missing && all_exist {
        asked.allow_auto_topic_creation = true;
        return Ok(session.call(version, client_id, &asked).await?);
    }
    Ok(again)
}

fn is_absent(error_code: i16) -> bool {
    [ErrorCode::UnknownTopicOrPartition, ErrorCode::UnknownTopicId, ErrorCode::TopicAuthorizationFailed]
        .iter()
        .any(|absent| absent.code() == error_code)
}

/// With which code each topic of an answer is hidden from clients, if it is: topics that are not classified yet or were
/// deleted, and our own log. A topic is given by its id, name and error code.
async fn hidden_as<'a>(
    session: &Session,
    topics: impl Iterator<Item = (uuid::Uuid, Option<&'a TopicName>, i16)>,
) -> Vec<Option<ErrorCode>> {
    let catalog = &session.proxy.catalog;
    let (mut codes, mut places, mut asked) = (Vec::new(), Vec::new(), Vec::new());
    for (place, (id, name, error_code)) in topics.enumerate() {
        codes.push(None);
        // Upstream repeats names and ids that it does not know, and ids are remembered.
        if let Some(name) = name.filter(|_| !is_absent(error_code)) {
            places.push(place);
            asked.push((TopicId::from(id), name.as_str()));
        }
    }
    let kinds = catalog.classify(&asked).await;
    for ((place, (_, name)), kind) in places.into_iter().zip(&asked).zip(kinds) {
        if catalog.is_metadata_topic(name) {
            codes[place] = Some(ErrorCode::TopicAuthorizationFailed);
        } else if matches!(kind, Kind::Hidden) {
            codes[place] = Some(ErrorCode::UnknownTopicOrPartition);
        }
    }
    codes
}

/// Takes away what clients must not see. A list of all topics leaves it out; a topic that was named is refused.
async fn hide(session: &Session, topics: &mut Vec<MetadataResponseTopic>, lists_all: bool) {
    let codes = hidden_as(session, topics.iter().map(|t| (t.topic_id, t.name.as_ref(), t.error_code))).await;
    let hidden = std::mem::take(topics).into_iter().zip(codes).filter_map(|(mut topic, code)| {
        if let Some(code) = code {
            if lists_all {
                return None;
            }
            topic.error_code = code.code();
            topic.topic_id = uuid::Uuid::nil();
            topic.partitions.clear();
        }
        Some(topic)
    });
    topics.extend(hidden);
}

/// What this proxy tells clients about brokers, with the ports of these real ones open.
async fn address_view(session: &Session, brokers: BTreeSet<i32>) -> AddressView {
    let proxy = &session.proxy;
    let ports = proxy.mapped.ensure(proxy, &brokers).await;
    let host = &proxy.config.listener.advertised_host;
    let mapped: BTreeMap<i32, Endpoint> =
        ports.into_iter().map(|(id, port)| (id, Endpoint { host: host.clone(), port })).collect();
    let view = proxy.coordination.view();
    let (proxies, now) = (view.proxies(), view.log_time());
    let zone = &proxy.config.proxy.zone;
    let virtual_brokers = virtual_brokers(&proxies, now, zone, &proxy.endpoint);
    AddressView { zone: zone.clone(), virtual_brokers, mapped, placement: Placement::new(&proxies, now) }
}

pub(crate) async fn find_coordinator(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let asked: FindCoordinatorRequest = request.decode()?;
    let mut response = session.call(request.version(), &request.client_id(), &asked).await?;
    // Up to version 3 there is one, flat; since version 4 a list, beside which the flat one is a default.
    let flat = Some(*response.node_id).filter(|_| !response.host.is_empty());
    let brokers = response.coordinators.iter().map(|c| *c.node_id).chain(flat).filter(|id| *id >= 0).collect();
    let addresses = address_view(session, brokers).await;
    addresses.rewrite_find_coordinator(&mut response).map_err(|_| CallError::Lost)?;
    request.answer::<FindCoordinatorRequest>(&response)
}

pub(crate) async fn describe_cluster(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let asked: DescribeClusterRequest = request.decode()?;
    let mut response = session.call(request.version(), &request.client_id(), &asked).await?;
    let brokers = response.brokers.iter().map(|b| *b.broker_id).collect();
    let addresses = address_view(session, brokers).await;
    response.brokers.retain(|b| b.host.is_empty() || addresses.mapped.contains_key(&b.broker_id));
    addresses.rewrite_describe_cluster(&mut response).map_err(|_| CallError::Lost)?;
    request.answer::<DescribeClusterRequest>(&response)
}

pub(crate) async fn describe_topic_partitions(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let asked: DescribeTopicPartitionsRequest = request.decode()?;
    let mut response = session.call(request.version(), &request.client_id(), &asked).await?;
    let codes = hidden_as(session, response.topics.iter().map(|t| (t.topic_id, t.name.as_ref(), t.error_code))).await;
    for (topic, code) in response.topics.iter_mut().zip(codes) {
        if let Some(code) = code {
            topic.error_code = code.code();
            topic.topic_id = uuid::Uuid::nil();
            topic.partitions.clear();
        }
    }
    let addresses = address_view(session, BTreeSet::new()).await;
    let topics = Arc::clone(&session.proxy.coordination.view().topics());
    addresses.rewrite_describe_topic_partitions(&mut response, topics.as_ref());
    request.answer::<DescribeTopicPartitionsRequest>(&response)
}
