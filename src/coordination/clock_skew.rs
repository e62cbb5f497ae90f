//! Notices a clock that is wrong: this host's against log time, whenever a command of our own comes back.
//!
//! Nothing breaks by it, since no single clock moves log time (R2), but commits look older or younger than they are,
//! and the times of records are wrong for their consumers.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::types::TimestampMs;

/// A command cannot be proposed after it was applied; this much is left to the clocks of healthy hosts.
const AHEAD_MS: i64 = 2_000;
/// A command may wait for the log this long before anything is wrong with a clock.
const BEHIND_MS: i64 = 30_000;
/// Older commands are being replayed, and so are those from the future: this clock has been set back since.
const REPLAYED_MS: i64 = 120_000;
const WARN_EVERY: Duration = Duration::from_secs(600);

#[derive(Default)]
pub(super) struct ClockSkew {
    warned: Mutex<Option<Instant>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Skew {
    Ahead(i64),
    Behind(i64),
}

/// From our own times when a command was proposed and now, and log time after it was applied.
fn skew(proposed: TimestampMs, now: TimestampMs, log_time: TimestampMs) -> Option<Skew> {
    if !(0..=REPLAYED_MS).contains(&now.saturating_sub(proposed)) {
        return None;
    }
    match log_time.saturating_sub(proposed) {
        early if early < -AHEAD_MS => Some(Skew::Ahead(-early)),
        late if late > BEHIND_MS => Some(Skew::Behind(late)),
        _ => None,
    }
}

impl ClockSkew {
    pub(super) fn look(&self, proposed: TimestampMs, now: TimestampMs, log_time: TimestampMs) {
        let Some(skew) = skew(proposed, now, log_time) else { return };
        let mut warned = self.warned.lock();
        if warned.is_some_and(|at| at.elapsed() < WARN_EVERY) {
            return;
        }
        *warned = Some(Instant::now());
        match skew {
            Skew::Ahead(ms) => tracing::warn!(
                "this host's clock is {:.1} s ahead of the brokers': set it (chronyc makestep), and check what keeps it",
                ms as f64 / 1e3
            ),
            Skew::Behind(ms) => tracing::warn!(
                "this host's clock is {:.1} s behind log time, or the log is that slow: set it (chronyc makestep) if it is wrong; if it is right, another proxy's or a broker's clock is ahead",
                ms as f64 / 1e3
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_told_apart_from_slow_logs_and_replays() {
        let now = 1_000_000_000;
        let table = [
            ("at once", now, now + 5, None),
            ("a slow append", now - 20_000, now, None),
            ("clocks a little apart", now, now - 1_500, None),
            ("an hour ahead", now, now - 3_600_000, Some(Skew::Ahead(3_600_000))),
            ("a minute behind, which is all that log time follows", now, now + 60_000, Some(Skew::Behind(60_000))),
            ("from before an hour was taken back", now + 3_500_000, now, None),
            ("replayed from last week", now - 600_000_000, now - 600_000_000 + 60_000, None),
        ];
        for (name, proposed, log_time, expected) in table {
            assert_eq!(skew(proposed, now, log_time), expected, "{name}");
        }
    }
}
