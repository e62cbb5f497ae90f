//! Settings of topics: `diskless.enable` is shown, never passed on, and never changed by its absence.

use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse as LegacyResponse;
use kafka_protocol::messages::describe_configs_response::{DescribeConfigsResourceResult, DescribeConfigsResult};
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use crate::kafka_server::dispatch::{HandleError, Incoming, Reply};
use crate::kafka_server::session::Session;
use crate::topic_catalog::config::{DISKLESS_ENABLE, Refusal, check_setting, parse_enable};
use crate::types::{ErrorCode, VIRTUAL_BROKER_BASE};
use crate::wire::StrBytes;

const TOPIC_RESOURCE: i8 = 2;
const BROKER_RESOURCE: i8 = 4;
const DYNAMIC_TOPIC_CONFIG: i8 = 1;
const BOOLEAN_CONFIG: i8 = 1;
const OPERATION_SET: i8 = 0;
const OPERATION_APPEND: i8 = 2;

/// Resources that are ours to answer: the virtual brokers.
fn is_virtual_broker(resource_type: i8, name: &str) -> bool {
    resource_type == BROKER_RESOURCE && name.parse::<i32>().is_ok_and(|id| id >= VIRTUAL_BROKER_BASE)
}

fn is_diskless(session: &Session, resource_type: i8, name: &str) -> bool {
    resource_type == TOPIC_RESOURCE && session.proxy.coordination.view().topics().by_name.contains_key(name)
}

pub(crate) async fn describe_configs(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let mut asked: DescribeConfigsRequest = request.decode()?;
    let wants_flag = |keys: &Option<Vec<StrBytes>>| {
        keys.as_ref().is_none_or(|keys| keys.iter().any(|k| k.as_str() == DISKLESS_ENABLE))
    };
    let flagged: Vec<String> = asked
        .resources
        .iter()
        .filter(|r| is_diskless(session, r.resource_type, &r.resource_name) && wants_flag(&r.configuration_keys))
        .map(|r| r.resource_name.to_string())
        .collect();
    let (ours, theirs): (Vec<_>, Vec<_>) =
        asked.resources.into_iter().partition(|r| is_virtual_broker(r.resource_type, &r.resource_name));
    asked.resources = theirs;
    let mut response = DescribeConfigsResponse::default();
    if !asked.resources.is_empty() {
        let version = session.version_of::<DescribeConfigsRequest>(4)?;
        response = session.call(version, &request.client_id(), &asked).await?;
    }
    for result in &mut response.results {
        let named = flagged.iter().any(|n| n == result.resource_name.as_str());
        if result.resource_type == TOPIC_RESOURCE && result.error_code == 0 && named {
            result.configs.push(flag_entry(asked.include_documentation));
        }
    }
    response.results.extend(ours.into_iter().map(|r| {
        DescribeConfigsResult::default().with_resource_type(r.resource_type).with_resource_name(r.resource_name)
    }));
    request.answer::<DescribeConfigsRequest>(&response)
}

fn flag_entry(documented: bool) -> DescribeConfigsResourceResult {
    let documentation = "Whether the topic's records are kept in object storage. Set when the topic is created.";
    DescribeConfigsResourceResult::default()
        .with_name(StrBytes::from_static_str(DISKLESS_ENABLE))
        .with_value(Some(StrBytes::from_static_str("true")))
        .with_config_source(DYNAMIC_TOPIC_CONFIG)
        .with_config_type(BOOLEAN_CONFIG)
        .with_documentation(documented.then(|| StrBytes::from_static_str(documentation)))
}

/// One setting of one resource, as a request would change it.
struct Change<'a> {
    name: &'a str,
    /// What it is set to, or has appended to it. `None` where something is taken away.
    set_to: Option<Option<&'a str>>,
}

/// Why the changes of a resource cannot be made. `None` where they can, once the flag is stripped.
fn refuse_changes<'a>(diskless: bool, changes: impl Iterator<Item = Change<'a>>) -> Option<Refusal> {
    for change in changes {
        if change.name == DISKLESS_ENABLE {
            let asked = match change.set_to {
                Some(value) => parse_enable(value),
                None => Err(Refusal::config(format!("{DISKLESS_ENABLE} can only be set when a topic is created"))),
            };
            match asked {
                Ok(enable) if enable == diskless => {}
                Ok(true) => {
                    return Some(Refusal::config(
                        "an existing classic topic cannot be made diskless: create a new topic with diskless.enable=true",
                    ));
                }
                Ok(false) => {
                    return Some(Refusal::config(
                        "a diskless topic cannot be made classic: create a new topic without diskless.enable",
                    ));
                }
                Err(refusal) => return Some(refusal),
            }
        } else if diskless && let Err(refusal) = check_setting(change.name, change.set_to.flatten()) {
            return Some(refusal);
        }
    }
    None
}

/// What is decided about the changes of one resource before upstream is asked.
struct Judged {
    is_diskless: bool,
    refusal: Option<Refusal>,
}

fn judge<'a>(session: &Session, kind: i8, name: &str, changes: impl Iterator<Item = Change<'a>>) -> Judged {
    let is_diskless = is_diskless(session, kind, name);
    let refusal = if kind != TOPIC_RESOURCE {
        None
    } else if session.proxy.catalog.is_metadata_topic(name) {
        let message = "this topic holds the proxies' own log".to_owned();
        Some(Refusal { code: ErrorCode::TopicAuthorizationFailed, message })
    } else {
        refuse_changes(is_diskless, changes)
    };
    Judged { is_diskless, refusal }
}

/// The flag is ours: upstream would refuse it, or take its deletion for done.
fn is_ours(kind: i8, setting: &str) -> bool {
    kind == TOPIC_RESOURCE && setting == DISKLESS_ENABLE
}

fn code_and_message(refusal: Option<Refusal>) -> (i16, Option<StrBytes>) {
    refusal.map_or((0, None), |r| (r.code.code(), Some(StrBytes::from_string(r.message))))
}

pub(crate) async fn incremental_alter_configs(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let mut asked: IncrementalAlterConfigsRequest = request.decode()?;
    let mut response = IncrementalAlterConfigsResponse::default();
    let mut changed = Vec::new();
    let mut local = Vec::new();
    asked.resources.retain_mut(|resource| {
        let (kind, name) = (resource.resource_type, resource.resource_name.clone());
        let changes = resource.configs.iter().map(|c| Change {
            name: &c.name,
            set_to: matches!(c.config_operation, OPERATION_SET | OPERATION_APPEND).then_some(c.value.as_deref()),
        });
        let judged = judge(session, kind, &name, changes);
        resource.configs.retain(|c| !is_ours(kind, &c.name));
        let is_done = judged.refusal.is_some() || resource.configs.is_empty() || is_virtual_broker(kind, &name);
        if is_done {
            local.push(altered(kind, name, judged.refusal));
        } else if judged.is_diskless {
            changed.push(name.to_string());
        }
        !is_done
    });
    if !asked.resources.is_empty() {
        let version = session.version_of::<IncrementalAlterConfigsRequest>(1)?;
        response = session.call(version, &request.client_id(), &asked).await?;
    }
    if !asked.validate_only {
        session.proxy.catalog.refresh_configs(&changed).await;
    }
    response.responses.extend(local);
    request.answer::<IncrementalAlterConfigsRequest>(&response)
}

fn altered(resource_type: i8, resource_name: StrBytes, refusal: Option<Refusal>) -> AlterConfigsResourceResponse {
    let (code, message) = code_and_message(refusal);
    AlterConfigsResourceResponse::default()
        .with_resource_type(resource_type)
        .with_resource_name(resource_name)
        .with_error_code(code)
        .with_error_message(message)
}

/// The older request replaces all settings of a resource; what it does not name returns to its default, but a topic
/// that is diskless stays so.
pub(crate) async fn alter_configs(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let mut asked: AlterConfigsRequest = request.decode()?;
    let mut response = AlterConfigsResponse::default();
    let mut changed = Vec::new();
    let mut local = Vec::new();
    asked.resources.retain_mut(|resource| {
        let (kind, name) = (resource.resource_type, resource.resource_name.clone());
        let changes = resource.configs.iter().map(|c| Change { name: &c.name, set_to: Some(c.value.as_deref()) });
        let judged = judge(session, kind, &name, changes);
        resource.configs.retain(|c| !is_ours(kind, &c.name));
        let is_done = judged.refusal.is_some() || is_virtual_broker(kind, &name);
        if is_done {
            let (code, message) = code_and_message(judged.refusal);
            local.push(
                LegacyResponse::default()
                    .with_resource_type(kind)
                    .with_resource_name(name)
                    .with_error_code(code)
                    .with_error_message(message),
            );
        } else if judged.is_diskless {
            changed.push(name.to_string());
        }
        !is_done
    });
    if !asked.resources.is_empty() {
        let version = session.version_of::<AlterConfigsRequest>(2)?;
        response = session.call(version, &request.client_id(), &asked).await?;
    }
    if !asked.validate_only {
        session.proxy.catalog.refresh_configs(&changed).await;
    }
    response.responses.extend(local);
    request.answer::<AlterConfigsRequest>(&response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<'a>(name: &'a str, value: &'a str) -> Change<'a> {
        Change { name, set_to: Some(Some(value)) }
    }

    #[test]
    fn the_kind_of_a_topic_does_not_change_by_its_settings() {
        let refused = |diskless, change| refuse_changes(diskless, std::iter::once(change)).is_some();
        assert!(!refused(true, set("diskless.enable", "true")));
        assert!(!refused(false, set("diskless.enable", "false")));
        assert!(refused(false, set("diskless.enable", "true")));
        assert!(refused(true, set("diskless.enable", "false")));
        assert!(refused(true, Change { name: "diskless.enable", set_to: None }));
    }

    #[test]
    fn compaction_is_refused_on_diskless_topics_only() {
        let compact = || std::iter::once(set("cleanup.policy", "compact"));
        assert!(refuse_changes(true, compact()).is_some());
        assert!(refuse_changes(false, compact()).is_none());
    }
}
