//! R3: says of a batch whether an earlier one of its producer is not settled here.
//!
//! Without this a new producer's second batch could be accepted although its first failed: the log knows nothing of
//! the producer, and Kafka accepts any first sequence of an unknown one. A batch that failed counts until a batch of
//! that producer is accepted, because its successors may still be on their way; only the retry of the failed batch
//! itself, known by its sequence, does not follow it.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::record_batch::BatchHeader;
use crate::types::TopicPartition;

/// For how long a failure is remembered: longer than a client keeps a request in flight.
const FAILURE_KEPT: Duration = Duration::from_secs(300);
/// Entries that may pile up before those that are over are looked for.
const SWEEP_AT_LEAST: usize = 1024;

/// One producer in one partition, in one epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Stream {
    partition: TopicPartition,
    producer_id: i64,
    producer_epoch: i16,
}

impl Stream {
    /// `None` where the producer is not idempotent: it has no sequence to keep.
    pub(super) fn of(partition: TopicPartition, header: &BatchHeader) -> Option<Self> {
        header.is_idempotent().then_some(Self {
            partition,
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
        })
    }
}

#[derive(Default)]
struct State {
    unanswered: u32,
    /// The first batch that failed since one was accepted, by its sequence.
    failed: Option<(i32, Instant)>,
}

impl State {
    fn is_over(&self, now: Instant) -> bool {
        self.unanswered == 0 && self.failed.is_none_or(|(_, at)| now.duration_since(at) > FAILURE_KEPT)
    }
}

/// All producers with batches that are not settled.
pub(super) struct Follows {
    streams: HashMap<Stream, State>,
    sweep_at: usize,
}

impl Default for Follows {
    fn default() -> Self {
        Self { streams: HashMap::new(), sweep_at: SWEEP_AT_LEAST }
    }
}

impl Follows {
    /// Notes a batch that came; true if it follows one that is not settled.
    pub(super) fn arrived(&mut self, stream: Stream, base_sequence: i32, now: Instant) -> bool {
        if self.streams.len() >= self.sweep_at {
            self.streams.retain(|_, state| !state.is_over(now));
            self.sweep_at = (self.streams.len() * 2).max(SWEEP_AT_LEAST);
        }
        let state = self.streams.entry(stream).or_default();
        if state.is_over(now) {
            state.failed = None;
        }
        let follows_failed = state.failed.is_some_and(|(sequence, _)| sequence != base_sequence);
        let follows = state.unanswered > 0 || follows_failed;
        state.unanswered += 1;
        follows
    }

    /// Notes what became of a batch. To be called before its client can know.
    pub(super) fn answered(&mut self, stream: Stream, base_sequence: i32, accepted: bool, now: Instant) {
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        state.unanswered = state.unanswered.saturating_sub(1);
        if accepted {
            state.failed = None;
        } else if state.failed.is_none() {
            state.failed = Some((base_sequence, now));
        }
        if state.unanswered == 0 && state.failed.is_none() {
            self.streams.remove(&stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TopicId;

    fn stream(producer_id: i64) -> Stream {
        let partition = TopicPartition { topic_id: TopicId([1; 16]), partition: 0 };
        Stream { partition, producer_id, producer_epoch: 0 }
    }

    #[test]
    fn r3_a_batch_follows_while_an_earlier_one_is_unanswered() {
        let (mut follows, now) = (Follows::default(), Instant::now());
        assert!(!follows.arrived(stream(1), 0, now));
        assert!(follows.arrived(stream(1), 5, now));
        assert!(!follows.arrived(stream(2), 0, now), "another producer");
        follows.answered(stream(1), 0, true, now);
        assert!(follows.arrived(stream(1), 9, now), "the second is still unanswered");
        follows.answered(stream(1), 5, true, now);
        follows.answered(stream(1), 9, true, now);
        follows.answered(stream(2), 0, true, now);
        assert!(!follows.arrived(stream(1), 12, now));
        assert_eq!(follows.streams.len(), 1, "settled producers are forgotten");
    }

    #[test]
    fn r3_a_successor_on_its_way_while_the_first_was_failed_still_follows() {
        let (mut follows, now) = (Follows::default(), Instant::now());
        assert!(!follows.arrived(stream(1), 0, now));
        follows.answered(stream(1), 0, false, now);
        assert!(follows.arrived(stream(1), 5, now));
        follows.answered(stream(1), 5, false, now);
        assert!(!follows.arrived(stream(1), 0, now), "the retry of the failed one itself");
        assert!(follows.arrived(stream(1), 5, now));
        follows.answered(stream(1), 0, true, now);
        follows.answered(stream(1), 5, true, now);
        assert!(follows.streams.is_empty());
    }

    #[test]
    fn failures_are_forgotten_after_a_while_and_swept() {
        let (mut follows, now) = (Follows::default(), Instant::now());
        for producer in 0..SWEEP_AT_LEAST as i64 {
            follows.arrived(stream(producer), 0, now);
            follows.answered(stream(producer), 0, false, now);
        }
        let later = now + FAILURE_KEPT * 2;
        assert!(!follows.arrived(stream(0), 7, later));
        assert_eq!(follows.streams.len(), 1);
    }
}
