//! Carries effects into the view that readers see, after the metadata store has taken them.
//!
//! The working copies of topics and proxies live here, so that a change is one swap for the readers.

use std::collections::HashMap;
use std::sync::Arc;

use super::effect::{CommittedSegment, Effect};
use super::outcome::BatchOutcome;
use super::state::{Incarnation, State, TopicState};
use super::view::{BatchCoordinate, PartitionView, Proxies, ProxyInfo, SegmentRef, Topic, Topics, View};
use crate::types::{Offset, ProxyId, TimestampMs, TopicPartition};

/// Changes one view. Whoever applies the log owns it.
pub struct Publisher {
    view: Arc<View>,
    topics: Topics,
    proxies: Proxies,
    partitions: HashMap<TopicPartition, Arc<PartitionView>>,
    topics_changed: bool,
    proxies_changed: bool,
}

impl Publisher {
    pub fn new(view: Arc<View>) -> Self {
        Self {
            view,
            topics: Topics::default(),
            proxies: Proxies::default(),
            partitions: HashMap::new(),
            topics_changed: false,
            proxies_changed: false,
        }
    }

    /// Shows a whole state: at start, with its segments in the order of their commits.
    pub fn publish_state<'a>(&mut self, state: &State, segments: impl Iterator<Item = &'a CommittedSegment>) {
        if let Some(genesis) = &state.genesis {
            self.take(&Effect::Genesis(genesis.clone()));
        }
        self.proxies.cluster_version = state.cluster_version;
        for name in state.pending.keys() {
            self.topics.pending.insert(name.clone());
        }
        for topic in state.topics.values() {
            self.take_topic(topic);
        }
        for (proxy, incarnation) in &state.proxies {
            self.take_proxy(*proxy, incarnation);
        }
        for segment in segments {
            self.take_segment(segment);
        }
        for (partition, log) in &state.partitions {
            if log.log_start_offset > 0 {
                self.partition(*partition).publish_log_start(log.log_start_offset);
            }
        }
        (self.topics_changed, self.proxies_changed) = (true, true);
        self.swap(state.clock.time);
    }

    /// Shows what a group of records changed. Log time goes last: who sees it sees the rest.
    pub fn publish<'a>(&mut self, effects: impl Iterator<Item = &'a Effect>, time: TimestampMs) {
        for effect in effects {
            self.take(effect);
        }
        self.swap(time);
    }

    fn swap(&mut self, time: TimestampMs) {
        if std::mem::take(&mut self.topics_changed) {
            self.view.publish_topics(self.topics.clone());
        }
        if std::mem::take(&mut self.proxies_changed) {
            self.view.publish_proxies(self.proxies.clone());
        }
        self.view.publish_log_time(time);
    }

    fn take(&mut self, effect: &Effect) {
        match effect {
            Effect::Genesis(genesis) => {
                self.proxies.log_id = Some(genesis.log_id);
                self.proxies.upstream_cluster_id.clone_from(&genesis.upstream_cluster_id);
                self.proxies_changed = true;
            }
            Effect::Proxy(proxy, incarnation) => self.take_proxy(*proxy, incarnation),
            Effect::Pending(name, _) => {
                self.topics.pending.insert(name.clone());
                self.topics_changed = true;
            }
            Effect::PendingGone(name) => {
                self.topics.pending.remove(name);
                self.topics_changed = true;
            }
            Effect::Topic(topic) => self.take_topic(topic),
            Effect::Segment(segment) => self.take_segment(segment),
            Effect::ClusterVersion(version) => {
                self.proxies.cluster_version = *version;
                self.proxies_changed = true;
            }
            Effect::TimeMarks
            | Effect::Partition(..)
            | Effect::Producer(..)
            | Effect::ProducerExpired(_)
            | Effect::Checkpoint(_) => {}
        }
    }

    fn take_proxy(&mut self, proxy: ProxyId, incarnation: &Incarnation) {
        let info = ProxyInfo {
            epoch: incarnation.epoch,
            zone: incarnation.zone.clone(),
            endpoint: incarnation.endpoint.clone(),
            last_heard: incarnation.last_heard,
            closed: incarnation.closed,
            min_version: incarnation.min_version,
            max_version: incarnation.max_version,
        };
        if self.proxies.by_id.get(&proxy) != Some(&info) {
            self.proxies.by_id.insert(proxy, info);
            self.proxies_changed = true;
        }
    }

    fn take_topic(&mut self, topic: &TopicState) {
        self.topics_changed = true;
        if topic.deleted_at.is_some() {
            self.topics.by_id.remove(&topic.id);
            if self.topics.by_name.get(&topic.name) == Some(&topic.id) {
                self.topics.by_name.remove(&topic.name);
            }
            self.topics.deleted.insert(topic.id);
            return;
        }
        let all = (0..topic.partitions).map(|partition| TopicPartition { topic_id: topic.id, partition });
        let partitions = all.map(|partition| Arc::clone(self.partition(partition))).collect();
        self.topics.by_name.insert(topic.name.clone(), topic.id);
        self.topics.by_id.insert(
            topic.id,
            Arc::new(Topic {
                id: topic.id,
                name: topic.name.clone(),
                leader_epoch: topic.leader_epoch,
                config: topic.config.clone(),
                partitions,
            }),
        );
    }

    fn partition(&mut self, partition: TopicPartition) -> &Arc<PartitionView> {
        self.partitions.entry(partition).or_insert_with(|| Arc::new(PartitionView::new(partition, 0)))
    }

    fn take_segment(&mut self, committed: &CommittedSegment) {
        let segment = Arc::new(SegmentRef {
            id: committed.id,
            object_size: committed.object_size,
            committed_at: committed.committed_at,
        });
        for (partition, coordinates) in coordinates(&segment, committed) {
            self.partition(partition).publish_batches(coordinates);
        }
    }
}

/// Where the accepted batches of a segment lie. Partitions that got none are left out.
pub fn coordinates(
    segment: &Arc<SegmentRef>,
    committed: &CommittedSegment,
) -> Vec<(TopicPartition, Vec<BatchCoordinate>)> {
    let mut byte_offset = 1;
    let mut found = Vec::with_capacity(committed.partitions.len());
    for partition in &committed.partitions {
        let mut accepted: Vec<BatchCoordinate> = Vec::with_capacity(partition.batches.len());
        for batch in &partition.batches {
            if let BatchOutcome::Accepted(placed) = batch.outcome {
                accepted.push(BatchCoordinate {
                    segment: Arc::clone(segment),
                    base_offset: placed.base_offset,
                    max_timestamp: batch.meta.max_timestamp,
                    last_offset_delta: batch.meta.last_offset_delta,
                    byte_offset,
                    byte_length: batch.meta.byte_length,
                    log_append_time: placed.log_append_time != -1,
                });
            }
            // The sum fits: a commit whose batches do not is refused.
            byte_offset = byte_offset.saturating_add(batch.meta.byte_length);
        }
        if !accepted.is_empty() {
            found.push((partition.partition, accepted));
        }
    }
    found
}

/// The log end offset that a partition's view shows, for checks against the state.
pub fn visible_end(view: &View, partition: TopicPartition) -> Option<Offset> {
    let topics = view.topics();
    let topic = topics.by_id.get(&partition.topic_id)?;
    let index = usize::try_from(partition.partition).ok()?;
    Some(topic.partitions.get(index)?.bounds().high_watermark)
}
