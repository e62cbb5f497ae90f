//! Checks that each record arrives once and in order. Pure.
//!
//! A record says which stream it is of (topic, partition, producer) and its number in it; numbers begin at 0.

use std::collections::BTreeMap;

/// One producer's records in one partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct StreamId {
    pub(super) topic: usize,
    pub(super) partition: i32,
    pub(super) producer: u32,
}

/// What has arrived so far.
#[derive(Default, Debug)]
pub(super) struct Arrivals {
    next: BTreeMap<StreamId, u64>,
    count: u64,
    broken: Option<String>,
}

impl Arrivals {
    /// Takes the next record that a consumer was given.
    pub(super) fn take(&mut self, stream: StreamId, number: u64) {
        self.count += 1;
        let next = self.next.entry(stream).or_default();
        if number == *next {
            *next += 1;
        } else if self.broken.is_none() {
            let what =
                if number < *next { "came twice or too late" } else { "came too early: records before it are missing" };
            self.broken = Some(format!("record {number} of {stream:?} {what}; {} was due", *next));
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The first record that was out of place.
    pub(super) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: StreamId = StreamId { topic: 0, partition: 1, producer: 2 };

    fn broken(numbers: &[u64]) -> bool {
        let mut arrivals = Arrivals::default();
        numbers.iter().for_each(|n| arrivals.take(A, *n));
        arrivals.broken().is_some()
    }

    #[test]
    fn once_and_in_order_is_well() {
        assert!(!broken(&[0, 1, 2, 3]));
    }

    #[test]
    fn a_gap_a_duplicate_and_a_swap_are_noticed() {
        assert!(broken(&[0, 2]));
        assert!(broken(&[0, 1, 1]));
        assert!(broken(&[1, 0]));
    }
}
