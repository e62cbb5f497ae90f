//! Commits a WAL segment: once by its id, within its window (R7), each batch by the rules of its partition.

use std::sync::Arc;

use super::log_time::COMMIT_WINDOW_MS;
use super::placement::{Placement, ProducerState, place};
use crate::diskless_coordinator::command::CommitSegment;
use crate::diskless_coordinator::effect::{CommittedBatch, CommittedPartition, CommittedSegment, Effect};
use crate::diskless_coordinator::outcome::{BatchOutcome, Outcome, Placed, Refusal};
use crate::diskless_coordinator::state::{PartitionState, ProducerKey, State};
use crate::types::{ErrorCode, LogPosition, TopicPartition};
use crate::wal_segment::{BatchMeta, PartitionBatches};

/// The first batch starts after the format version.
const FIRST_BATCH_AT: u64 = 1;

/// Places every batch of a segment, or refuses the segment as a whole.
pub fn commit(state: &mut State, position: LogPosition, commit: CommitSegment, effects: &mut Vec<Effect>) -> Outcome {
    if let Some(first) = state.commits.get(&commit.segment) {
        return if says_the_same(first, &commit) {
            Outcome::Committed(first.outcomes())
        } else {
            Outcome::Refused(Refusal::Invalid("the segment was committed with other content"))
        };
    }
    if let Some(refusal) = refuse(state, position, &commit) {
        return Outcome::Refused(refusal);
    }
    let committed = Arc::new(CommittedSegment {
        id: commit.segment,
        object_size: commit.object_size,
        position,
        committed_at: state.clock.time,
        partitions: commit.partitions.into_iter().map(|p| place_partition(state, p, effects)).collect(),
    });
    let outcomes = committed.outcomes();
    effects.push(Effect::Segment(Arc::clone(&committed)));
    state.count_segment(&committed);
    state.commits.insert(committed);
    Outcome::Committed(outcomes)
}

fn says_the_same(first: &CommittedSegment, again: &CommitSegment) -> bool {
    let same_partition = |(a, b): (&CommittedPartition, &PartitionBatches)| {
        a.partition == b.partition && a.batches.iter().map(|batch| &batch.meta).eq(&b.batches)
    };
    first.object_size == again.object_size
        && first.partitions.len() == again.partitions.len()
        && first.partitions.iter().zip(&again.partitions).all(same_partition)
}

fn refuse(state: &State, position: LogPosition, commit: &CommitSegment) -> Option<Refusal> {
    if commit.partitions.is_empty() || commit.partitions.iter().any(|p| p.batches.is_empty()) {
        return Some(Refusal::Invalid("a commit without batches"));
    }
    let batches = commit.partitions.iter().flat_map(|p| &p.batches);
    let end = batches.fold(FIRST_BATCH_AT, |at, batch| at.saturating_add(u64::from(batch.byte_length)));
    if end > commit.object_size || u32::try_from(end).is_err() {
        return Some(Refusal::Invalid("the batches do not fit the object"));
    }
    if commit.segment.birth >= position {
        return Some(Refusal::Invalid("the segment's birth is not in the past"));
    }
    let age_ms = state.clock.age_of(commit.segment.birth).unwrap_or(i64::MAX);
    (age_ms > COMMIT_WINDOW_MS).then_some(Refusal::TooOld { age_ms, window_ms: COMMIT_WINDOW_MS })
}

fn place_partition(state: &mut State, batches: PartitionBatches, effects: &mut Vec<Effect>) -> CommittedPartition {
    let partition = batches.partition;
    let stamps = state.live_topic(&partition.topic_id).map(|topic| topic.config.log_append_time);
    let known = state.partitions.get(&partition).copied();
    let (Some(stamps), Some(mut log)) = (stamps, known) else {
        let unknown = BatchOutcome::Rejected(ErrorCode::UnknownTopicOrPartition);
        let batches = batches.batches.into_iter().map(|meta| CommittedBatch { meta, outcome: unknown }).collect();
        return CommittedPartition { partition, batches };
    };
    let log_append_time = if stamps { state.clock.time } else { -1 };
    let batches = batches
        .batches
        .into_iter()
        .map(|meta| CommittedBatch {
            meta,
            outcome: place_batch(state, partition, &mut log, &meta, log_append_time, effects),
        })
        .collect();
    if known != Some(log) {
        state.partitions.insert(partition, log);
        effects.push(Effect::Partition(partition, log));
    }
    CommittedPartition { partition, batches }
}

fn place_batch(
    state: &mut State,
    partition: TopicPartition,
    log: &mut PartitionState,
    batch: &BatchMeta,
    log_append_time: i64,
    effects: &mut Vec<Effect>,
) -> BatchOutcome {
    let now = state.clock.time;
    let key = ProducerKey { partition, producer_id: batch.producer_id };
    let idempotent = batch.producer_id >= 0;
    let producer = state.producers.get(&key).filter(|known| idempotent && !known.is_expired(now));
    match place(producer, batch) {
        Placement::Reject(code) => return BatchOutcome::Rejected(code),
        Placement::Duplicate(first) => {
            return BatchOutcome::Duplicate(Placed {
                base_offset: first.base_offset,
                log_append_time: first.log_append_time,
                log_start_offset: log.log_start_offset,
            });
        }
        Placement::Append => {}
    }
    let base_offset = log.log_end_offset;
    let Some(next) = base_offset.checked_add(i64::from(batch.last_offset_delta) + 1) else {
        return BatchOutcome::Rejected(ErrorCode::UnknownServerError);
    };
    if idempotent {
        let after = ProducerState::after(producer, batch, base_offset, log_append_time, now);
        effects.push(Effect::Producer(key, after));
        state.producers.insert(key, after);
    }
    log.log_end_offset = next;
    BatchOutcome::Accepted(Placed { base_offset, log_append_time, log_start_offset: log.log_start_offset })
}
