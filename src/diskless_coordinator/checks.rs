//! The invariants of the state and of what is shown of it. For tests, simulation and the admin API.

use std::collections::BTreeMap;

use super::effect::CommittedSegment;
use super::outcome::BatchOutcome;
use super::rules::placement::{ProducerState, increment_sequence};
use super::state::{ProducerKey, State};
use crate::types::{Offset, TopicPartition};

/// What is wrong, one sentence each; empty when nothing is. `segments` are all that were committed, in log order.
pub fn verify<'a>(state: &State, segments: impl Iterator<Item = &'a CommittedSegment>) -> Vec<String> {
    let mut wrong = Vec::new();
    let ends = verify_offsets(segments, &mut wrong);
    for (partition, log) in &state.partitions {
        let end = ends.get(partition).copied().unwrap_or(log.log_start_offset);
        if log.log_start_offset > log.log_end_offset {
            wrong.push(format!("I2: {partition:?} starts at {} after its end", log.log_start_offset));
        }
        if end != log.log_end_offset {
            wrong.push(format!("I1: {partition:?} ends at {} but its batches end at {end}", log.log_end_offset));
        }
    }
    for (key, producer) in &state.producers {
        verify_producer(key, producer, &mut wrong);
    }
    verify_topics(state, &mut wrong);
    wrong
}

/// I1: every accepted batch begins where the one before it ended.
fn verify_offsets<'a>(
    segments: impl Iterator<Item = &'a CommittedSegment>,
    wrong: &mut Vec<String>,
) -> BTreeMap<TopicPartition, Offset> {
    let mut ends: BTreeMap<TopicPartition, Offset> = BTreeMap::new();
    for segment in segments {
        for part in &segment.partitions {
            for batch in &part.batches {
                let BatchOutcome::Accepted(placed) = batch.outcome else { continue };
                let next = placed.base_offset + i64::from(batch.meta.last_offset_delta) + 1;
                let due = ends.insert(part.partition, next).unwrap_or(placed.base_offset);
                if due != placed.base_offset {
                    wrong.push(format!("I1: {:?} has {} where {due} was due", part.partition, placed.base_offset));
                }
            }
        }
    }
    ends
}

/// I6: what is remembered of a producer is an unbroken run of sequences and growing offsets.
fn verify_producer(key: &ProducerKey, producer: &ProducerState, wrong: &mut Vec<String>) {
    let batches: Vec<_> = producer.batches().collect();
    for pair in batches.windows(2) {
        if increment_sequence(pair[0].last_sequence, 1) != pair[1].first_sequence {
            wrong.push(format!("I6: {key:?} goes from {} to {}", pair[0].last_sequence, pair[1].first_sequence));
        }
        if pair[0].base_offset >= pair[1].base_offset {
            wrong.push(format!("I6: {key:?} has offset {} before {}", pair[0].base_offset, pair[1].base_offset));
        }
    }
}

fn verify_topics(state: &State, wrong: &mut Vec<String>) {
    for (name, id) in &state.names {
        if state.live_topic(id).is_none_or(|topic| topic.name != *name) {
            wrong.push(format!("the name {name} leads to {id}, which is not a live topic of that name"));
        }
    }
    for topic in state.topics.values() {
        let first = TopicPartition { topic_id: topic.id, partition: 0 };
        let last = TopicPartition { topic_id: topic.id, partition: i32::MAX };
        let known = state.partitions.range(first..=last).count();
        if usize::try_from(topic.partitions) != Ok(known) {
            wrong.push(format!("{} has {} partitions, but {known} are kept", topic.name, topic.partitions));
        }
    }
}
