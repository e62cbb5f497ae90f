//! Log time: the one clock of the state machine (R2), and what it was at recent positions (R7).
//!
//! No single clock moves it: the log's append time counts only as far as the proposer's own clock agrees.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::types::{LogPosition, TimestampMs};

/// How far a record's append time may be ahead of its proposer's clock before it is cut off.
pub const CLOCK_TOLERANCE_MS: i64 = 60_000;
/// A segment must be committed within this much log time of its birth.
pub const COMMIT_WINDOW_MS: i64 = 60_000;
/// Times are kept for one position in this many milliseconds; ages are too large by at most this much.
const MARK_EVERY_MS: i64 = 100;

/// Log time now, and at the positions of the last commit window.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LogClock {
    pub time: TimestampMs,
    pub marks: VecDeque<TimeMark>,
}

/// What log time was at a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TimeMark {
    pub position: LogPosition,
    pub time: TimestampMs,
}

impl LogClock {
    /// Takes the times of one record. Says whether the marks changed.
    pub fn advance(&mut self, position: LogPosition, append_time: TimestampMs, wall_time: TimestampMs) -> bool {
        self.time = self.time.max(append_time.min(wall_time.saturating_add(CLOCK_TOLERANCE_MS)));
        let due = |last: &TimeMark| self.time.saturating_sub(last.time) >= MARK_EVERY_MS;
        if !self.marks.back().is_none_or(due) {
            return false;
        }
        self.marks.push_back(TimeMark { position, time: self.time });
        let horizon = self.time.saturating_sub(COMMIT_WINDOW_MS);
        while self.marks.get(1).is_some_and(|second| second.time <= horizon) {
            self.marks.pop_front();
        }
        true
    }

    /// How long ago, in log time, a position was the last one. `None`: longer than the marks reach back.
    pub fn age_of(&self, position: LogPosition) -> Option<i64> {
        let after = self.marks.partition_point(|mark| mark.position <= position);
        let mark = self.marks.get(after.checked_sub(1)?)?;
        Some(self.time.saturating_sub(mark.time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r2_no_single_clock_moves_log_time() {
        let mut clock = LogClock::default();
        let mut at = |append, wall| {
            clock.advance(LogPosition(0), append, wall);
            clock.time
        };
        assert_eq!(at(1000, 1000), 1000);
        assert_eq!(at(500, 1000), 1000, "time does not go back");
        assert_eq!(at(1_000_000, 2000), 62_000, "a log clock that runs ahead is cut off");
        assert_eq!(at(63_000, i64::MAX), 63_000, "a proposer's clock alone moves nothing");
        assert_eq!(at(i64::MAX, i64::MIN), 63_000);
    }

    #[test]
    fn r7_age_is_counted_from_the_birth_position() {
        let mut clock = LogClock::default();
        for second in 0..120 {
            clock.advance(LogPosition(second), second * 1000, second * 1000);
        }
        assert_eq!(clock.age_of(LogPosition(119)), Some(0));
        assert_eq!(clock.age_of(LogPosition(100)), Some(19_000));
        assert_eq!(clock.age_of(LogPosition(59)), Some(60_000));
        assert_eq!(clock.age_of(LogPosition(58)), None);
        assert_eq!(clock.age_of(LogPosition::NONE), None);
    }

    #[test]
    fn marks_are_bounded_however_fast_the_log_grows() {
        let mut clock = LogClock::default();
        for n in 0..200_000 {
            clock.advance(LogPosition(n), n, n);
        }
        assert!(clock.marks.len() <= 602, "{}", clock.marks.len());
    }
}
