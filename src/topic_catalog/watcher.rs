//! Keeps what is known of diskless topics in step with their shadow topics: settings, partitions, deletion past the proxy,
//! and records that a client wrote past the proxy.
//!
//! Every proxy runs one. Two that see the same change propose it twice, and `apply` refuses the second as stale.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::config::topic_config;
use super::{TopicCatalog, shadow};
use crate::diskless_coordinator::command::{Command, TopicConfig};
use crate::diskless_coordinator::view::Topic;
use crate::types::TopicId;

/// How often settings and partitions are read.
const CONFIG_INTERVAL: Duration = Duration::from_secs(5);
/// How often the ends of shadow logs are read.
const STRAY_INTERVAL: Duration = Duration::from_secs(30);
/// A topic that seems gone is asked for again after this long, before it counts as deleted (R4).
const ABSENCE_CONFIRMED_AFTER: Duration = Duration::from_secs(120);

/// Records found in shadow logs: clients that bypass the proxy.
#[derive(Default)]
pub struct StrayStats {
    pub partitions: AtomicU64,
    by_topic: Mutex<BTreeMap<String, usize>>,
}

impl StrayStats {
    /// Partitions of a topic that a client wrote to past the proxy.
    pub fn of(&self, topic: &str) -> usize {
        self.by_topic.lock().get(topic).copied().unwrap_or(0)
    }
}

/// Runs until it is told to stop.
pub async fn watch(catalog: Arc<TopicCatalog>, stats: Arc<StrayStats>, stop: CancellationToken) {
    let mut absent: HashMap<TopicId, Instant> = HashMap::new();
    let mut next_stray_check = Instant::now();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(CONFIG_INTERVAL) => {}
        }
        let topics: Vec<Arc<Topic>> = catalog.coordination.view().topics().by_id.values().cloned().collect();
        if topics.is_empty() {
            continue;
        }
        catalog.follow_partitions(&topics).await;
        let names: Vec<String> = topics.iter().map(|t| t.name.clone()).collect();
        catalog.refresh_configs(&names).await;
        catalog.follow_deletions(&topics, &mut absent).await;
        if Instant::now() >= next_stray_check {
            next_stray_check = Instant::now() + STRAY_INTERVAL;
            catalog.look_for_strays(&topics, &stats).await;
        }
    }
}

impl TopicCatalog {
    /// Reads the settings of diskless topics from upstream and proposes what has changed. A failed or partial read
    /// changes nothing (R9).
    pub async fn refresh_configs(&self, names: &[String]) {
        if names.is_empty() {
            return;
        }
        let asked: Vec<&str> = names.iter().map(String::as_str).collect();
        let read = match self.cluster.describe_topic_configs(&asked).await {
            Ok(read) => read,
            Err(error) => {
                tracing::debug!(%error, "the settings of diskless topics could not be read; they stay as they are");
                return;
            }
        };
        for (name, settings) in read {
            let Ok(settings) = settings else { continue };
            let topic = self.coordination.view().topics().named(&name).cloned();
            let Some(topic) = topic else { continue };
            let entries = settings.iter().map(|(k, v)| (k.as_str(), v.as_deref()));
            let config = topic_config(topic.config.version + 1, entries);
            if (TopicConfig { version: topic.config.version, ..config.clone() }) != topic.config {
                let command = Command::TopicConfigChanged { topic_id: topic.id, config };
                // Refused or lost: the next round tries again.
                let _ = self.coordination.submit(command).await;
            }
        }
    }

    async fn follow_partitions(&self, topics: &[Arc<Topic>]) {
        let names: Vec<&str> = topics.iter().map(|t| t.name.as_str()).collect();
        let Ok(shadows) = shadow::topics(&self.cluster, &names).await else { return };
        for topic in topics {
            if let Some(partitions) = shadows.get(&topic.id).copied().filter(|n| *n > topic.partitions.len()) {
                let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
                let _ = self.coordination.submit(Command::PartitionsCreated { topic_id: topic.id, partitions }).await;
            }
        }
    }

    /// R4: a topic is gone only if every broker that can be reached says so explicitly, twice, minutes apart.
    async fn follow_deletions(&self, topics: &[Arc<Topic>], absent: &mut HashMap<TopicId, Instant>) {
        absent.retain(|id, _| topics.iter().any(|t| t.id == *id));
        for topic in topics {
            match shadow::is_gone_everywhere(&self.cluster, topic.id, &topic.name).await {
                Ok(true) => {
                    let since = *absent.entry(topic.id).or_insert_with(Instant::now);
                    if since.elapsed() >= ABSENCE_CONFIRMED_AFTER {
                        tracing::warn!(topic = topic.name, id = %topic.id, "a diskless topic was deleted past the proxy; its data is no longer readable");
                        let _ = self.coordination.submit(Command::TopicDeleted { topic_id: topic.id }).await;
                    }
                }
                Ok(false) => {
                    absent.remove(&topic.id);
                }
                // Not heard from everyone: proves nothing either way.
                Err(_) => {}
            }
        }
    }

    async fn look_for_strays(&self, topics: &[Arc<Topic>], stats: &StrayStats) {
        let mut strays = 0;
        let mut by_topic = BTreeMap::new();
        for topic in topics {
            let Ok(ends) = shadow::log_ends(&self.cluster, &topic.name, topic.partitions.len()).await else { continue };
            for (partition, end) in ends.iter().enumerate().filter(|(_, end)| **end > 0) {
                strays += 1;
                *by_topic.entry(topic.name.clone()).or_insert(0) += 1;
                tracing::warn!(
                    topic = topic.name,
                    partition,
                    records = end,
                    "a client writes to this diskless topic past the proxy, where nobody reads: allow WRITE from the proxies' addresses only (kafka-acls --allow-host)"
                );
            }
        }
        stats.partitions.store(strays, Ordering::Relaxed);
        *stats.by_topic.lock() = by_topic;
    }
}
