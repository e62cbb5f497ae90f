//! Which batches a Fetch is answered with, by KIP-74's limits: one budget over all partitions, one limit for each,
//! whole batches only, and the first batch of the answer whatever its size, so that a consumer always gets on.

use std::collections::HashSet;

use crate::diskless_coordinator::view::BatchCoordinate;

/// Chooses batches for `count` partitions, beginning at number `start` and going round, so that with a small budget
/// no partition is always last.
///
/// `find(number, limit)` gives a partition's batches from its fetch offset on: at least one where there is one, more
/// while they sum to at most `limit` bytes. `limit_of(number)` is the partition's own limit.
pub(super) fn plan(
    count: usize,
    start: usize,
    max_bytes: usize,
    limit_of: impl Fn(usize) -> usize,
    find: impl Fn(usize, usize) -> Vec<BatchCoordinate>,
) -> Vec<Vec<BatchCoordinate>> {
    let mut plan = vec![Vec::new(); count];
    let mut left = max_bytes;
    let mut is_empty = true;
    for number in (0..count).map(|n| (start + n) % count) {
        let limit = limit_of(number).min(left);
        if limit == 0 && !is_empty {
            continue;
        }
        let found = find(number, limit);
        let size = size(&found);
        if size <= limit || is_empty {
            is_empty &= found.is_empty();
            left = left.saturating_sub(size);
            plan[number] = found;
        }
    }
    plan
}

/// Cuts a plan where it touches too many objects. A slice keeps the memory of the whole block that it was cut from, so
/// an answer of small batches out of many segments would hold far more than its own size. `cost(object_size)` is what
/// one segment holds; the first is always kept. Returns what the rest holds.
pub(super) fn bound_held_bytes(
    plan: &mut [Vec<BatchCoordinate>],
    start: usize,
    max_held_bytes: u64,
    cost: impl Fn(u64) -> u64,
) -> u64 {
    let mut held = 0;
    let mut touched = HashSet::new();
    let count = plan.len();
    for number in (0..count).map(|n| (start + n) % count) {
        let batches = &mut plan[number];
        let mut fits = |batch: &BatchCoordinate| {
            let cost = cost(batch.segment.object_size);
            if touched.contains(&batch.segment.id) {
                return true;
            }
            if held > 0 && held + cost > max_held_bytes {
                return false;
            }
            held += cost;
            touched.insert(batch.segment.id)
        };
        let kept = batches.iter().take_while(|batch| fits(batch)).count();
        batches.truncate(kept);
    }
    held
}

fn size(batches: &[BatchCoordinate]) -> usize {
    batches.iter().map(|batch| batch.byte_length as usize).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::diskless_coordinator::view::SegmentRef;
    use crate::types::{LogPosition, WalSegmentId};

    fn batches(sizes: &[u32], limit: usize) -> Vec<BatchCoordinate> {
        let id = WalSegmentId { birth: LogPosition(1), epoch: LogPosition(0), sequence: 0 };
        let segment = Arc::new(SegmentRef { id, object_size: 1000, committed_at: 0 });
        let mut sum = 0;
        let fits = |(number, size): &(usize, &u32)| {
            sum += **size as usize;
            *number == 0 || sum <= limit
        };
        let coordinate = |(_, size): (usize, &u32)| BatchCoordinate {
            segment: Arc::clone(&segment),
            base_offset: 0,
            max_timestamp: 0,
            last_offset_delta: 0,
            byte_offset: 1,
            byte_length: *size,
            log_append_time: false,
        };
        sizes.iter().enumerate().take_while(fits).map(coordinate).collect()
    }

    fn in_segment(sequence: u32) -> BatchCoordinate {
        let id = WalSegmentId { birth: LogPosition(1), epoch: LogPosition(0), sequence };
        let segment = Arc::new(SegmentRef { id, object_size: 1000, committed_at: 0 });
        BatchCoordinate { segment, ..batches(&[10], 10).remove(0) }
    }

    #[test]
    fn an_answer_holds_the_memory_of_a_bounded_number_of_segments() {
        let kept = |start, max_held_bytes| {
            let mut plan = vec![
                vec![in_segment(1), in_segment(2), in_segment(1), in_segment(3)],
                vec![in_segment(2), in_segment(4)],
            ];
            let held = bound_held_bytes(&mut plan, start, max_held_bytes, |size| size.min(400));
            (plan[0].len(), plan[1].len(), held)
        };
        assert_eq!(kept(0, 10_000), (4, 2, 1600));
        assert_eq!(kept(0, 800), (3, 1, 800), "segments that are held anyway cost nothing");
        assert_eq!(kept(1, 800), (0, 2, 800), "in the order of the plan");
        assert_eq!(kept(0, 1), (1, 0, 400), "one at least");
    }

    /// What is planned of partitions with batches of these sizes.
    fn sizes(partitions: &[&[u32]], start: usize, max_bytes: usize, limit: usize) -> Vec<Vec<u32>> {
        let plan = plan(partitions.len(), start, max_bytes, |_| limit, |n, limit| batches(partitions[n], limit));
        plan.iter().map(|p| p.iter().map(|b| b.byte_length).collect()).collect()
    }

    #[test]
    fn the_table_of_plans() {
        let two: &[&[u32]] = &[&[10, 10, 10], &[10, 10]];
        assert_eq!(sizes(two, 0, 100, 100), [vec![10, 10, 10], vec![10, 10]], "all of it");
        assert_eq!(sizes(two, 0, 100, 25), [vec![10, 10], vec![10, 10]], "each partition has a limit");
        assert_eq!(sizes(two, 0, 40, 100), [vec![10, 10, 10], vec![10]], "one budget over all");
        assert_eq!(sizes(two, 1, 40, 100), [vec![10, 10], vec![10, 10]], "beginning with the second");
        assert_eq!(sizes(two, 0, 5, 5), [vec![10], vec![]], "the first batch whatever its size");
        assert_eq!(sizes(&[&[], &[50], &[4]], 0, 5, 5), [vec![], vec![50], vec![]], "of the first that has one");
        assert_eq!(sizes(&[&[4], &[50], &[1]], 0, 5, 5), [vec![4], vec![], vec![1]], "but only of that");
        assert_eq!(sizes(&[], 0, 5, 5), Vec::<Vec<u32>>::new());
        assert_eq!(sizes(&[&[7]], 0, 0, 0), [vec![7]]);
    }

    proptest! {
        #[test]
        fn a_plan_keeps_its_limits_and_is_empty_only_where_nothing_is_there(
            partitions in prop::collection::vec(prop::collection::vec(1..100u32, 0..6), 1..6),
            start in 0..6usize, max_bytes in 0..300usize, limit in 0..150usize,
        ) {
            let partitions: Vec<&[u32]> = partitions.iter().map(Vec::as_slice).collect();
            let planned = sizes(&partitions, start, max_bytes, limit);
            let count: usize = planned.iter().map(Vec::len).sum();
            let total: u32 = planned.iter().flatten().sum();
            prop_assert!(total as usize <= max_bytes || count == 1);
            for (planned, all) in planned.iter().zip(&partitions) {
                prop_assert!(all.starts_with(planned));
                // Only the first batch of the answer may be larger than its partition's limit.
                prop_assert!(planned.iter().sum::<u32>() as usize <= limit || planned.len() == 1);
            }
            prop_assert_eq!(count == 0, partitions.iter().all(|p| p.is_empty()));
        }
    }
}
