//! The REST API's bodies, as Kafka Connect would shape them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Sources;
use crate::diskless_coordinator::view::Topic;
use crate::routing::placement::Placement;
use crate::types::virtual_broker_id;
use crate::upstream::UpstreamError;

pub(super) fn root(sources: &Sources) -> Value {
    let proxy = &sources.proxy;
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "kafka_cluster_id": proxy.cluster.cluster().id,
        "log_id": proxy.coordination.log_id().to_string(),
        "proxy_id": proxy.config.proxy.id.0,
        "zone": proxy.config.proxy.zone,
        "bootstrap": proxy.endpoint.to_string(),
    })
}

pub(super) fn proxies(sources: &Sources) -> Value {
    let view = sources.proxy.coordination.view();
    let now = view.log_time();
    let one = |(id, info): (&crate::types::ProxyId, &crate::diskless_coordinator::view::ProxyInfo)| {
        json!({
            "proxy_id": id.0,
            "broker_id": virtual_broker_id(*id),
            "zone": info.zone,
            "endpoint": info.endpoint.to_string(),
            "state": if info.is_live(now) { "RUNNING" } else { "GONE" },
            "last_heard_ms": now - info.last_heard,
        })
    };
    Value::Array(view.proxies().by_id.iter().map(one).collect())
}

/// What came of the metadata log.
pub(super) fn state(sources: &Sources) -> Value {
    let coordination = &sources.proxy.coordination;
    let view = coordination.view();
    let checkpoint = coordination.checkpoint();
    let topics = view.topics();
    let partitions = || topics.by_id.values().flat_map(|t| &t.partitions);
    let records: i64 = partitions().map(|p| p.bounds()).map(|b| b.high_watermark - b.log_start_offset).sum();
    json!({
        "log_id": coordination.log_id().to_string(),
        "applied_position": coordination.applied().0,
        "log_time_ms": view.log_time(),
        "cluster_version": view.proxies().cluster_version,
        "checkpoint": {
            "position": checkpoint.position.0,
            "log_chain": checkpoint.chain.to_string(),
            "state_digest": checkpoint.digest.to_string(),
        },
        "topics": topics.by_id.len(),
        "partitions": partitions().count(),
        "records": records,
        "batch_bytes": partitions().map(|p| p.size()).sum::<u64>(),
        "proxies": view.proxies().by_id.len(),
    })
}

pub(super) fn topics(sources: &Sources) -> Value {
    let topics = sources.proxy.coordination.view().topics();
    let mut names: Vec<&String> = topics.by_name.keys().collect();
    names.sort();
    json!(names)
}

/// Topics of both kinds, by name. Of classic ones upstream says how many partitions they have.
pub(super) async fn all_topics(sources: &Sources) -> Result<Value, UpstreamError> {
    let metadata = sources.proxy.cluster.metadata_of_all_topics().await?;
    let diskless = sources.proxy.coordination.view().topics();
    let mut all = serde_json::Map::new();
    for topic in metadata.topics.iter().filter(|t| t.error_code == 0) {
        let Some(name) = topic.name.as_ref().map(|n| n.as_str()) else { continue };
        if !sources.proxy.catalog.is_metadata_topic(name) {
            let leaders = counted(topic.partitions.iter().map(|p| p.leader_id.0));
            let shown =
                json!({"name": name, "kind": "classic", "partitions": topic.partitions.len(), "leaders": leaders});
            all.insert(name.to_owned(), shown);
        }
    }
    for topic in diskless.by_id.values() {
        all.insert(topic.name.clone(), describe(sources, topic));
    }
    Ok(Value::Object(all))
}

pub(super) fn topic(sources: &Sources, name: &str) -> Option<Value> {
    let topics = sources.proxy.coordination.view().topics();
    topics.named(name).map(|topic| describe(sources, topic))
}

/// How many partitions each broker leads.
fn counted(leaders: impl Iterator<Item = i32>) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for leader in leaders {
        *counts.entry(leader.to_string()).or_default() += 1;
    }
    counts
}

/// Who leads what, for clients of this zone.
fn placement(sources: &Sources) -> Placement {
    let view = sources.proxy.coordination.view();
    Placement::new(&view.proxies(), view.log_time())
}

fn describe(sources: &Sources, topic: &Topic) -> Value {
    let placement = placement(sources);
    let zone = &sources.proxy.config.proxy.zone;
    let leaders = counted(topic.partitions.iter().filter_map(|p| placement.leader(zone, p.partition)));
    let bytes: u64 = topic.partitions.iter().map(|p| p.size()).sum();
    let records: i64 = topic.partitions.iter().map(|p| p.bounds()).map(|b| b.high_watermark - b.log_start_offset).sum();
    json!({
        "name": topic.name,
        "topic_id": topic.id.to_string(),
        "kind": "diskless",
        "partitions": topic.partitions.len(),
        "bytes": bytes,
        "records": records,
        "leaders": leaders,
        "stray_partitions": sources.strays.of(&topic.name),
        "config": {
            "message.timestamp.type": if topic.config.log_append_time { "LogAppendTime" } else { "CreateTime" },
            "max.message.bytes": topic.config.max_message_bytes,
            "retention.ms": topic.config.retention_ms,
            "retention.bytes": topic.config.retention_bytes,
        },
    })
}

pub(super) fn partitions(sources: &Sources, name: &str) -> Option<Value> {
    let topics = sources.proxy.coordination.view().topics();
    let topic = topics.named(name)?;
    let placement = placement(sources);
    let zone = &sources.proxy.config.proxy.zone;
    let one = |partition: &std::sync::Arc<crate::diskless_coordinator::view::PartitionView>| {
        let bounds = partition.bounds();
        json!({
            "partition": partition.partition.partition,
            "leader": placement.leader(zone, partition.partition),
            "replicas": placement.replicas(partition.partition),
            "log_start_offset": bounds.log_start_offset,
            "high_watermark": bounds.high_watermark,
            "bytes": partition.size(),
        })
    };
    Some(Value::Array(topic.partitions.iter().map(one).collect()))
}
