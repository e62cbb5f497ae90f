//! Topics come, grow and go: what is asked of diskless ones is done upstream and in the log, in the order that R4 and R5
//! demand.

use std::collections::HashMap;

use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, CreatePartitionsRequest, CreatePartitionsResponse,
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse, WriteTxnMarkersRequest,
};

use crate::kafka_server::dispatch::{HandleError, Incoming, Refused, Reply};
use crate::kafka_server::session::{CallError, Session};
use crate::topic_catalog::config::{DISKLESS_ENABLE, Refusal, topic_config};
use crate::topic_catalog::create::{Created, Plan, plan};
use crate::types::{ErrorCode, TopicId};
use crate::wire::StrBytes;

/// Every setting of a topic counts as set on the topic itself.
const DYNAMIC_TOPIC_CONFIG: i8 = 1;

pub(crate) async fn create(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let asked: CreateTopicsRequest = request.decode()?;
    let response = create_topics(session, &request.client_id(), asked).await?;
    request.answer::<CreateTopicsRequest>(&response)
}

/// Creates topics of both kinds; results come in the order of the request.
pub(super) async fn create_topics(
    session: &mut Session,
    client_id: &str,
    mut asked: CreateTopicsRequest,
) -> Result<CreateTopicsResponse, HandleError> {
    let order: Vec<_> = asked.topics.iter().map(|t| t.name.clone()).collect();
    let mut plans = plan_all(session, &mut asked);
    let mut response = CreateTopicsResponse::default();
    let validate_only = asked.validate_only;
    if !validate_only {
        response.topics = refuse_early(session, client_id, &asked, &mut plans).await?;
        announce_all(session, &mut plans).await;
    }
    asked.topics.retain(|t| matches!(plans.get(t.name.as_str()), Some(Plan::Classic | Plan::Diskless)));
    if !asked.topics.is_empty() {
        let version = session.version_of::<CreateTopicsRequest>(7)?;
        let forwarded = session.call(version, client_id, &asked).await;
        if forwarded.is_err() && !validate_only {
            withdraw_all(session, &plans).await;
        }
        let forwarded = forwarded?;
        response.throttle_time_ms = forwarded.throttle_time_ms;
        response.topics.extend(forwarded.topics);
    }
    for result in &mut response.topics {
        if plans.get(result.name.as_str()) == Some(&Plan::Diskless) {
            finish(session, result, validate_only).await;
        }
    }
    for (name, plan) in &plans {
        if let Plan::Refuse(refusal) = plan {
            response.topics.push(refused_topic(name, refusal));
        }
    }
    response.topics.sort_by_key(|r| order.iter().position(|n| *n == r.name));
    Ok(response)
}

/// Decides about each topic.
fn plan_all(session: &Session, asked: &mut CreateTopicsRequest) -> HashMap<String, Plan> {
    let mut plans = HashMap::new();
    for topic in &mut asked.topics {
        let name = topic.name.as_str().to_owned();
        let mut decided = plan_one(session, topic);
        if plans.contains_key(&name) {
            let message = "the request names this topic twice".to_owned();
            decided = Plan::Refuse(Refusal { code: ErrorCode::InvalidRequest, message });
        }
        plans.insert(name, decided);
    }
    plans
}

/// Has upstream try the diskless ones without creating them, and gives its refusals. A name must not be announced,
/// and so withheld from everyone, for a client that may not create it, or for a topic that exists already.
async fn refuse_early(
    session: &mut Session,
    client_id: &str,
    asked: &CreateTopicsRequest,
    plans: &mut HashMap<String, Plan>,
) -> Result<Vec<CreatableTopicResult>, HandleError> {
    let mut trial = asked.clone().with_validate_only(true);
    trial.topics.retain(|t| plans.get(t.name.as_str()) == Some(&Plan::Diskless));
    if trial.topics.is_empty() {
        return Ok(Vec::new());
    }
    let version = session.version_of::<CreateTopicsRequest>(7)?;
    let mut refused = session.call(version, client_id, &trial).await?.topics;
    refused.retain(|result| result.error_code != 0);
    for result in &refused {
        // Neither created nor announced: upstream's own answer stands.
        plans.remove(result.name.as_str());
    }
    Ok(refused)
}

async fn announce_all(session: &Session, plans: &mut HashMap<String, Plan>) {
    for (name, plan) in plans.iter_mut().filter(|(_, plan)| **plan == Plan::Diskless) {
        if let Err(refusal) = session.proxy.catalog.announce(name).await {
            *plan = Plan::Refuse(refusal);
        }
    }
}

fn plan_one(session: &Session, topic: &mut CreatableTopic) -> Plan {
    if session.proxy.catalog.is_metadata_topic(&topic.name) {
        return Plan::Refuse(Refusal {
            code: ErrorCode::TopicAuthorizationFailed,
            message: "this topic holds the proxies' own log".to_owned(),
        });
    }
    let matches = session.proxy.config.diskless.matches(&topic.name);
    plan(topic, matches)
}

/// The connection broke before upstream answered: it may have created them or not. An announcement that is withdrawn
/// leaves a classic topic, which is what upstream then has.
async fn withdraw_all(session: &Session, plans: &HashMap<String, Plan>) {
    for (name, plan) in plans {
        if *plan == Plan::Diskless {
            session.proxy.catalog.withdraw(name).await;
        }
    }
}

/// Registers a topic that upstream has created, or takes the announcement back.
async fn finish(session: &mut Session, result: &mut CreatableTopicResult, validate_only: bool) {
    let name = result.name.to_string();
    if result.error_code != 0 {
        if !validate_only {
            session.proxy.catalog.withdraw(&name).await;
        }
        return;
    }
    if !validate_only {
        let settings = result.configs.iter().flatten().map(|c| (c.name.as_str(), c.value.as_deref()));
        let mut created = Created {
            name: name.clone(),
            id: TopicId::from(result.topic_id),
            partitions: result.num_partitions,
            config: topic_config(1, settings),
        };
        if let Err(refusal) = session.proxy.catalog.register(&mut created).await {
            session.proxy.catalog.withdraw(&name).await;
            *result = refused_topic(&name, &refusal);
            return;
        }
        tracing::info!(topic = name, id = %created.id, partitions = created.partitions, "created a diskless topic");
    }
    show_enabled(result);
}

/// Adds our own setting to those that upstream shows. A creator without DESCRIBE_CONFIGS is shown none (KIP-525).
fn show_enabled(result: &mut CreatableTopicResult) {
    if result.topic_config_error_code != 0 {
        return;
    }
    if let Some(configs) = &mut result.configs {
        configs.push(
            CreatableTopicConfigs::default()
                .with_name(StrBytes::from_static_str(DISKLESS_ENABLE))
                .with_value(Some(StrBytes::from_static_str("true")))
                .with_config_source(DYNAMIC_TOPIC_CONFIG),
        );
    }
}

fn refused_topic(name: &str, refusal: &Refusal) -> CreatableTopicResult {
    CreatableTopicResult::default()
        .with_name(StrBytes::from_string(name.to_owned()).into())
        .with_error_code(refusal.code.code())
        .with_error_message(Some(StrBytes::from_string(refusal.message.clone())))
        .with_num_partitions(-1)
        .with_replication_factor(-1)
}

pub(crate) async fn delete(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let asked: DeleteTopicsRequest = request.decode()?;
    let version = session.version_of::<DeleteTopicsRequest>(6)?;
    let (forwarded, withheld) = without_metadata_topic(session, normalized(asked));
    let mut response = DeleteTopicsResponse::default();
    if !forwarded.topics.is_empty() {
        response = session.call(version, &request.client_id(), &forwarded).await?;
    }
    for result in &mut response.responses {
        let id = TopicId::from(result.topic_id);
        let is_diskless = session.proxy.coordination.view().topics().by_id.contains_key(&id);
        if result.error_code == 0
            && is_diskless
            && let Err(refusal) = session.proxy.catalog.deleted(id).await
        {
            // Upstream has deleted it all the same; the catalog's watcher will notice.
            result.error_code = refusal.code.code();
            result.error_message = Some(StrBytes::from_string(refusal.message));
        }
    }
    response.responses.extend(withheld);
    request.answer::<DeleteTopicsRequest>(&response)
}

/// The form of version 6, which names topics by name or by id.
fn normalized(mut asked: DeleteTopicsRequest) -> DeleteTopicsRequest {
    let named = std::mem::take(&mut asked.topic_names);
    asked.topics.extend(named.into_iter().map(|name| DeleteTopicState::default().with_name(Some(name))));
    asked
}

fn without_metadata_topic(
    session: &Session,
    mut asked: DeleteTopicsRequest,
) -> (DeleteTopicsRequest, Vec<DeletableTopicResult>) {
    let mut withheld = Vec::new();
    asked.topics.retain(|topic| {
        let catalog = &session.proxy.catalog;
        let is_ours = topic.name.as_ref().is_some_and(|n| catalog.is_metadata_topic(n))
            || catalog.is_metadata_topic_id(topic.topic_id.into());
        if is_ours {
            withheld.push(
                DeletableTopicResult::default()
                    .with_name(topic.name.clone())
                    .with_topic_id(topic.topic_id)
                    .with_error_code(ErrorCode::TopicAuthorizationFailed.code()),
            );
        }
        !is_ours
    });
    (asked, withheld)
}

pub(crate) async fn create_partitions(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let mut asked: CreatePartitionsRequest = request.decode()?;
    let ours = |t: &CreatePartitionsTopic| session.proxy.catalog.is_metadata_topic(&t.name);
    let (withheld, others): (Vec<_>, Vec<_>) = asked.topics.into_iter().partition(ours);
    asked.topics = others;
    let mut response = CreatePartitionsResponse::default();
    if !asked.topics.is_empty() {
        let version = session.version_of::<CreatePartitionsRequest>(3)?;
        response = session.call(version, &request.client_id(), &asked).await?;
    }
    response.results.extend(withheld.into_iter().map(|topic| {
        let code = ErrorCode::TopicAuthorizationFailed.code();
        CreatePartitionsTopicResult::default().with_name(topic.name).with_error_code(code)
    }));
    let grown: Vec<_> = if asked.validate_only { Vec::new() } else { asked.topics };
    for result in &mut response.results {
        let wanted = grown.iter().find(|t| t.name == result.name);
        let topic = session.proxy.coordination.view().topics().named(&result.name).map(|t| t.id);
        if let (0, Some(wanted), Some(topic)) = (result.error_code, wanted, topic)
            && let Err(refusal) = session.proxy.catalog.partitions_created(topic, wanted.count).await
        {
            refuse_partitions(result, refusal);
        }
    }
    request.answer::<CreatePartitionsRequest>(&response)
}

fn refuse_partitions(result: &mut CreatePartitionsTopicResult, refusal: Refusal) {
    result.error_code = refusal.code.code();
    result.error_message = Some(StrBytes::from_string(refusal.message));
}

/// Transactions cannot span diskless topics yet; saying so here spares the producer a hanging transaction. As in Kafka,
/// one refused partition fails them all.
pub(crate) async fn add_partitions_to_txn(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    if request.version() > 3 {
        // Brokers alone send these; upstream checks that.
        return Ok(request.forward());
    }
    let asked: AddPartitionsToTxnRequest = request.decode()?;
    // A name that is only announced may yet turn out to be nobody's: the client cannot know it as diskless.
    let topics = session.proxy.coordination.view().topics();
    let is_refused = |name: &str| topics.by_name.contains_key(name) || session.proxy.catalog.is_metadata_topic(name);
    if !asked.v3_and_below_topics.iter().any(|t| is_refused(&t.name)) {
        return Ok(request.forward());
    }
    tracing::warn!(
        client_id = request.client_id(),
        "refused a transaction with a diskless topic: transactions are not supported there; use a topic without diskless.enable"
    );
    let result = |topic: &kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic| {
        let code =
            if is_refused(&topic.name) { ErrorCode::PolicyViolation } else { ErrorCode::OperationNotAttempted }.code();
        let partition = |index: &i32| {
            AddPartitionsToTxnPartitionResult::default().with_partition_index(*index).with_partition_error_code(code)
        };
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic.name.clone())
            .with_results_by_partition(topic.partitions.iter().map(partition).collect())
    };
    let response = AddPartitionsToTxnResponse::default()
        .with_results_by_topic_v3_and_below(asked.v3_and_below_topics.iter().map(result).collect());
    request.answer::<AddPartitionsToTxnRequest>(&response)
}

/// Ends a transaction by hand (`kafka-transactions abort`). Diskless topics have none to end, and a marker in our own log
/// would only be in the way.
pub(crate) async fn write_txn_markers(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let asked: WriteTxnMarkersRequest = request.decode()?;
    let mut named = asked.markers.iter().flat_map(|m| &m.topics).map(|t| t.name.as_str());
    if named.any(|name| session.proxy.catalog.is_withheld(name)) {
        return Err(Refused::NotForClients { api_key: request.header.api_key }.into());
    }
    Ok(request.forward())
}

/// Creates topics that a client would have had created by naming them in a Metadata request.
pub(super) async fn auto_create(session: &mut Session, client_id: &str, names: &[String]) -> Result<(), CallError> {
    let topic = |name: &String| {
        CreatableTopic::default()
            .with_name(StrBytes::from_string(name.clone()).into())
            .with_num_partitions(-1)
            .with_replication_factor(-1)
    };
    let request = CreateTopicsRequest::default().with_topics(names.iter().map(topic).collect()).with_timeout_ms(15_000);
    match create_topics(session, client_id, request).await {
        Ok(_) => Ok(()),
        Err(HandleError::Call(error)) => Err(error),
        Err(HandleError::Wire(error)) => Err(error.into()),
        Err(HandleError::Refused(_)) => Err(CallError::Lost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_creator_who_may_see_no_settings_is_not_shown_ours() {
        for (error, shown) in [(ErrorCode::None, 1), (ErrorCode::TopicAuthorizationFailed, 0)] {
            let mut result = CreatableTopicResult::default()
                .with_topic_config_error_code(error.code())
                .with_configs(Some(Vec::new()));
            show_enabled(&mut result);
            assert_eq!(result.configs.map(|c| c.len()), Some(shown), "{error:?}");
        }
    }
}
