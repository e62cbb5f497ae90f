//! The life of diskless topics: announced, registered, grown, configured, deleted (R5, R9).

use crate::diskless_coordinator::command::{FIRST_OFFSET, TopicConfig};
use crate::diskless_coordinator::effect::Effect;
use crate::diskless_coordinator::outcome::{Outcome, Refusal};
use crate::diskless_coordinator::state::{PartitionState, State, TopicState};
use crate::types::{TimestampMs, TopicId, TopicPartition};

/// A name stays announced for this much log time.
pub const PENDING_FOR_MS: i64 = 120_000;
/// More partitions in one topic are refused, so that no record can ask for memory without end.
pub const MAX_PARTITIONS: i32 = 100_000;
/// Kafka's limit (`Topic.MAX_NAME_LENGTH`).
const MAX_NAME_LENGTH: usize = 249;
/// More names cannot be announced at once.
const MAX_PENDING: usize = 10_000;

/// A topic to register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    pub name: String,
    pub topic_id: TopicId,
    pub partitions: i32,
    pub leader_epoch: i32,
    pub config: TopicConfig,
}

/// Announces a name before the topic is created upstream.
pub fn announce(state: &mut State, name: String, effects: &mut Vec<Effect>) -> Outcome {
    if name.is_empty() || name.len() > MAX_NAME_LENGTH {
        return Outcome::Refused(Refusal::Invalid("not a topic name"));
    }
    if state.names.contains_key(&name) || state.pending.contains_key(&name) {
        return Outcome::Refused(Refusal::TopicExists);
    }
    if state.pending.len() >= MAX_PENDING {
        return Outcome::Refused(Refusal::Invalid("too many topics are being created"));
    }
    let since = state.clock.time;
    effects.push(Effect::Pending(name.clone(), since));
    state.pending.insert(name, since);
    Outcome::Done
}

/// Frees an announced name.
pub fn drop_announced(state: &mut State, name: String, effects: &mut Vec<Effect>) -> Outcome {
    if state.pending.remove(&name).is_none() {
        return Outcome::Refused(Refusal::Stale);
    }
    effects.push(Effect::PendingGone(name));
    Outcome::Done
}

/// Makes a topic diskless. Its name must be announced and not have expired; a repeat of the same is done already.
pub fn register(state: &mut State, topic: Registration, effects: &mut Vec<Effect>) -> Outcome {
    if let Some(refusal) = refuse_registration(&topic) {
        return Outcome::Refused(refusal);
    }
    if let Some(known) = state.topics.get(&topic.topic_id) {
        let repeated = known.deleted_at.is_none() && known.name == topic.name && known.partitions == topic.partitions;
        return if repeated { Outcome::Done } else { Outcome::Refused(Refusal::TopicExists) };
    }
    if state.names.contains_key(&topic.name) {
        return Outcome::Refused(Refusal::TopicExists);
    }
    if state.pending.remove(&topic.name).is_none() {
        return Outcome::Refused(Refusal::NotPending);
    }
    effects.push(Effect::PendingGone(topic.name.clone()));
    let registered = TopicState {
        id: topic.topic_id,
        name: topic.name.clone(),
        partitions: topic.partitions,
        leader_epoch: topic.leader_epoch,
        config: topic.config,
        deleted_at: None,
    };
    create_partitions(state, topic.topic_id, 0..topic.partitions, effects);
    effects.push(Effect::Topic(Box::new(registered.clone())));
    state.names.insert(topic.name, topic.topic_id);
    state.topics.insert(topic.topic_id, registered);
    Outcome::Done
}

fn refuse_registration(topic: &Registration) -> Option<Refusal> {
    if topic.name.is_empty() || topic.name.len() > MAX_NAME_LENGTH {
        return Some(Refusal::Invalid("not a topic name"));
    }
    if topic.topic_id.is_zero() {
        return Some(Refusal::Invalid("a topic needs an id"));
    }
    if !(1..=MAX_PARTITIONS).contains(&topic.partitions) {
        return Some(Refusal::Invalid("not a number of partitions"));
    }
    if topic.leader_epoch < 0 {
        return Some(Refusal::Invalid("not a leader epoch"));
    }
    None
}

fn create_partitions(state: &mut State, topic_id: TopicId, new: std::ops::Range<i32>, effects: &mut Vec<Effect>) {
    for partition in new {
        let partition = TopicPartition { topic_id, partition };
        let empty = PartitionState { log_start_offset: FIRST_OFFSET, log_end_offset: FIRST_OFFSET };
        state.partitions.insert(partition, empty);
        effects.push(Effect::Partition(partition, empty));
    }
}

/// Hides a topic. Its id stays known, its data is retired later by others.
pub fn delete(state: &mut State, topic_id: TopicId, effects: &mut Vec<Effect>) -> Outcome {
    let now = state.clock.time;
    let Some(topic) = state.topics.get_mut(&topic_id).filter(|t| t.deleted_at.is_none()) else {
        return Outcome::Refused(Refusal::UnknownTopic);
    };
    topic.deleted_at = Some(now);
    state.names.remove(&topic.name);
    effects.push(Effect::Topic(Box::new(topic.clone())));
    Outcome::Done
}

/// Adds partitions; a topic never has fewer than before.
pub fn grow(state: &mut State, topic_id: TopicId, partitions: i32, effects: &mut Vec<Effect>) -> Outcome {
    if partitions > MAX_PARTITIONS {
        return Outcome::Refused(Refusal::Invalid("not a number of partitions"));
    }
    let Some(topic) = state.topics.get_mut(&topic_id).filter(|t| t.deleted_at.is_none()) else {
        return Outcome::Refused(Refusal::UnknownTopic);
    };
    if partitions <= topic.partitions {
        return Outcome::Refused(Refusal::Stale);
    }
    let new = topic.partitions..partitions;
    topic.partitions = partitions;
    let grown = topic.clone();
    create_partitions(state, topic_id, new, effects);
    effects.push(Effect::Topic(Box::new(grown)));
    Outcome::Done
}

/// Takes a newer configuration.
pub fn configure(state: &mut State, topic_id: TopicId, config: TopicConfig, effects: &mut Vec<Effect>) -> Outcome {
    let Some(topic) = state.topics.get_mut(&topic_id).filter(|t| t.deleted_at.is_none()) else {
        return Outcome::Refused(Refusal::UnknownTopic);
    };
    if config.version <= topic.config.version {
        return Outcome::Refused(Refusal::Stale);
    }
    topic.config = config;
    effects.push(Effect::Topic(Box::new(topic.clone())));
    Outcome::Done
}

/// Frees announced names whose creation was never concluded.
pub fn expire_pending(state: &mut State, now: TimestampMs, effects: &mut Vec<Effect>) {
    state.pending.retain(|name, since| {
        let keep = now.saturating_sub(*since) < PENDING_FOR_MS;
        if !keep {
            effects.push(Effect::PendingGone(name.clone()));
        }
        keep
    });
}
