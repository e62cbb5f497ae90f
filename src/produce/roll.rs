//! When the active segment is rolled: a decision over plain values.
//!
//! A full segment rolls at once, and none waits longer than the window. Before that a segment rolls early
//! - when it is worth a PUT by its size and no other segment is under way: waiting would only leave the store idle, and
//!   the requests that a client may have in flight would travel in bunches (the idea of Nagle's algorithm);
//! - when it is quiet, since waiting buys nothing where nothing more will come: at once if it is worth a PUT, else if
//!   the PUT budget has a token.
//!
//! So the number of PUTs is at most the larger of what the fixed window would give and one per
//! [`RollLimits::quiet_bytes`], plus one burst.

use std::time::Duration;

use tokio::time::Instant;

/// How many PUTs may be saved up while nothing is written.
const BURST: u32 = 4;

/// The settings of a roll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RollLimits {
    /// `diskless.append.buffer.max.bytes`
    pub(super) max_bytes: usize,
    /// So that one commit always fits one record of the metadata log.
    pub(super) max_batches: usize,
    /// `diskless.append.commit.interval.ms`, from the segment's first byte.
    pub(super) window: Duration,
    /// `diskless.append.quiet.ms`, from the segment's last byte.
    pub(super) quiet: Duration,
    /// `diskless.append.quiet.bytes`
    pub(super) quiet_bytes: usize,
}

impl Default for RollLimits {
    fn default() -> Self {
        Self {
            max_bytes: 4 << 20,
            max_batches: 8_000,
            window: Duration::from_millis(250),
            quiet: Duration::from_millis(5),
            quiet_bytes: 512 << 10,
        }
    }
}

/// How far the active segment is filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fill {
    pub(super) first: Instant,
    pub(super) last: Instant,
    pub(super) bytes: usize,
    pub(super) batches: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Roll {
    /// Roll, and pay for it where it is not paid for by its size.
    Now { takes_token: bool },
    /// Ask again then, or when something was added.
    At(Instant),
}

/// `is_idle`: no other segment is under way.
pub(super) fn should_roll(now: Instant, fill: Fill, limits: &RollLimits, budget: &PutBudget, is_idle: bool) -> Roll {
    let is_worth_a_put = fill.bytes >= limits.quiet_bytes;
    if is_full(fill, limits) || (is_worth_a_put && is_idle) {
        return Roll::Now { takes_token: false };
    }
    let window_end = fill.first + limits.window;
    if now >= window_end {
        return Roll::Now { takes_token: true };
    }
    let quiet_from = fill.last + limits.quiet;
    if now < quiet_from {
        return Roll::At(quiet_from.min(window_end));
    }
    if is_worth_a_put {
        return Roll::Now { takes_token: false };
    }
    match budget.next_token(now) {
        None => Roll::Now { takes_token: true },
        Some(at) => Roll::At(at.min(window_end)),
    }
}

/// A full segment takes no more batches, whatever the time.
pub(super) fn is_full(fill: Fill, limits: &RollLimits) -> bool {
    fill.bytes >= limits.max_bytes || fill.batches >= limits.max_batches
}

/// Tokens for PUTs that are not worth it by their size: one more each window, up to a small burst.
#[derive(Clone, Copy, Debug)]
pub(super) struct PutBudget {
    every: Duration,
    /// When the bucket was, or will be, empty: each token is one `every` of time after that.
    empty_at: Instant,
}

impl PutBudget {
    /// A full bucket.
    pub(super) fn new(now: Instant, window: Duration) -> Self {
        let every = window.max(Duration::from_millis(1));
        Self { every, empty_at: now.checked_sub(every * BURST).unwrap_or(now) }
    }

    /// When there will be a token; `None` if there is one now.
    fn next_token(&self, now: Instant) -> Option<Instant> {
        let at = self.empty_at + self.every;
        (now < at).then_some(at)
    }

    /// Takes a token. A segment rolls by its window only one window after the roll before it, so there is one.
    pub(super) fn take(&mut self, now: Instant) {
        let fullest = now.checked_sub(self.every * BURST).unwrap_or(self.empty_at);
        self.empty_at = self.empty_at.max(fullest) + self.every;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: RollLimits = RollLimits {
        max_bytes: 1000,
        max_batches: 20,
        window: Duration::from_millis(250),
        quiet: Duration::from_millis(5),
        quiet_bytes: 300,
    };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_table_of_rolls() {
        let start = Instant::now();
        let full = PutBudget::new(start, LIMITS.window);
        let mut empty = full;
        for _ in 0..BURST {
            empty.take(start);
        }
        // now, first, last, bytes, batches, budget, the answer
        let at = |after| Roll::At(start + ms(after));
        let (paid, free) = (Roll::Now { takes_token: true }, Roll::Now { takes_token: false });
        let table = [
            ("just begun: wait for quiet", 0, 0, 0, 10, 1, full, at(5)),
            ("quiet, and a token is there", 5, 0, 0, 10, 1, full, paid),
            ("quiet, and no token: when one comes", 5, 0, 0, 10, 1, empty, at(250)),
            ("still growing", 104, 0, 100, 10, 2, full, at(105)),
            ("quiet and worth a PUT", 105, 0, 100, 300, 2, empty, free),
            ("worth a PUT and still growing", 104, 0, 104, 300, 2, empty, at(109)),
            ("growing at the window's end", 250, 0, 249, 10, 2, empty, paid),
            ("never later than the window", 248, 0, 247, 10, 2, full, at(250)),
            ("full by bytes", 1, 0, 1, 1000, 2, empty, free),
            ("full by batches", 1, 0, 1, 10, 20, empty, free),
        ];
        for (name, now, first, last, bytes, batches, budget, expected) in table {
            let fill = Fill { first: start + ms(first), last: start + ms(last), bytes, batches };
            assert_eq!(should_roll(start + ms(now), fill, &LIMITS, &budget, false), expected, "{name}");
        }
    }

    #[test]
    fn what_is_worth_a_put_does_not_wait_while_nothing_is_under_way() {
        let start = Instant::now();
        let budget = PutBudget::new(start, LIMITS.window);
        let mut fill = Fill { first: start, last: start, bytes: 300, batches: 1 };
        assert_eq!(should_roll(start, fill, &LIMITS, &budget, true), Roll::Now { takes_token: false });
        assert_eq!(should_roll(start, fill, &LIMITS, &budget, false), Roll::At(start + LIMITS.quiet));
        fill.bytes = 299;
        assert_eq!(should_roll(start, fill, &LIMITS, &budget, true), Roll::At(start + LIMITS.quiet), "too small");
    }

    #[test]
    fn tokens_come_back_one_each_window_up_to_the_burst() {
        let start = Instant::now();
        let mut budget = PutBudget::new(start, ms(100));
        for _ in 0..BURST {
            assert_eq!(budget.next_token(start), None);
            budget.take(start);
        }
        assert_eq!(budget.next_token(start), Some(start + ms(100)));
        let later = start + ms(100_000);
        for _ in 0..BURST {
            assert_eq!(budget.next_token(later), None);
            budget.take(later);
        }
        assert_eq!(budget.next_token(later), Some(later + ms(100)));
    }

    /// Plays arrivals (milliseconds after the one before, bytes), and counts the rolls.
    fn play(arrivals: &[(u64, usize)], is_idle: bool) -> (u64, u64, u64) {
        let start = Instant::now();
        let mut budget = PutBudget::new(start, LIMITS.window);
        let (mut now, mut fill, mut puts, mut bytes): (_, Option<Fill>, _, _) = (start, None, 0, 0);
        let mut settle = |fill: &mut Option<Fill>, mut now: Instant, until: Instant, puts: &mut u64| {
            while let Some(filled) = *fill {
                match should_roll(now, filled, &LIMITS, &budget, is_idle) {
                    Roll::Now { takes_token } => {
                        *puts += 1;
                        *fill = None;
                        if takes_token {
                            budget.take(now);
                        }
                    }
                    Roll::At(at) if at >= until => break,
                    Roll::At(at) => {
                        assert!(at > now, "time goes on");
                        now = at;
                    }
                }
            }
        };
        for (gap, size) in arrivals {
            let next = now + ms(*gap);
            settle(&mut fill, now, next, &mut puts);
            now = next;
            bytes += *size as u64;
            let old = fill.unwrap_or(Fill { first: now, last: now, bytes: 0, batches: 0 });
            fill = Some(Fill { last: now, bytes: old.bytes + size, batches: old.batches + 1, ..old });
        }
        settle(&mut fill, now, now + LIMITS.window * 2, &mut puts);
        let took = now.duration_since(start) + LIMITS.window * 2;
        (puts, took.as_millis() as u64, bytes)
    }

    proptest! {
        #[test]
        fn there_are_never_more_puts_than_the_budget_allows(
            arrivals in prop::collection::vec((0..40u64, 20..400usize), 1..400),
            is_idle in any::<bool>(),
        ) {
            let (puts, took_ms, bytes) = play(&arrivals, is_idle);
            // The smallest batch here is 20 bytes, so a segment full by batches holds at least quiet_bytes as well.
            let by_window = took_ms / 250 + u64::from(BURST);
            let by_bytes = bytes / 300;
            prop_assert!(puts <= by_window + by_bytes, "{puts} > {by_window} + {by_bytes}");
        }

        #[test]
        fn light_traffic_costs_no_more_than_the_window(
            // Too rarely and too little for a roll by batches or by size.
            arrivals in prop::collection::vec((14..300u64, 1..2usize), 1..200),
            is_idle in any::<bool>(),
        ) {
            let (puts, took_ms, _) = play(&arrivals, is_idle);
            prop_assert!(puts <= took_ms / 250 + u64::from(BURST), "{puts} in {took_ms} ms");
        }
    }
}
