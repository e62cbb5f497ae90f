//! Each rule of Kafka as a row, and all of them against a model that keeps every batch.

use proptest::prelude::*;

use super::*;

fn batch(producer_id: i64, epoch: i16, base_sequence: i32, count: u32) -> BatchMeta {
    BatchMeta {
        byte_length: 100,
        last_offset_delta: count - 1,
        max_timestamp: 0,
        producer_id,
        producer_epoch: epoch,
        base_sequence,
        follows: false,
    }
}

/// A producer that wrote batches of ten records each at epoch 1, from `first` on.
fn wrote(first: i32, batches: i32) -> ProducerState {
    let mut state = None;
    let mut sequence = first;
    for n in 0..batches {
        let next = batch(5, 1, sequence, 10);
        state = Some(ProducerState::after(state.as_ref(), &next, i64::from(n) * 10, -1, 0));
        sequence = increment_sequence(sequence, 10);
    }
    state.expect("at least one batch was written")
}

#[track_caller]
fn check(known: Option<ProducerState>, batch: BatchMeta, expected: Result<Option<Offset>, ErrorCode>) {
    let got = match place(known.as_ref(), &batch) {
        Placement::Append => Ok(None),
        Placement::Duplicate(first) => Ok(Some(first.base_offset)),
        Placement::Reject(code) => Err(code),
    };
    assert_eq!(got, expected);
}

const OUT_OF_ORDER: Result<Option<Offset>, ErrorCode> = Err(ErrorCode::OutOfOrderSequenceNumber);

#[test]
fn the_next_sequence_is_appended() {
    check(Some(wrote(0, 1)), batch(5, 1, 10, 3), Ok(None));
}

#[test]
fn a_gap_is_out_of_order() {
    check(Some(wrote(0, 1)), batch(5, 1, 11, 3), OUT_OF_ORDER);
}

#[test]
fn an_exact_repeat_gets_the_first_offset() {
    for (base, offset) in [(0, 0), (20, 20), (40, 40)] {
        check(Some(wrote(0, 5)), batch(5, 1, base, 10), Ok(Some(offset)));
    }
}

#[test]
fn overlaps_are_not_duplicates() {
    check(Some(wrote(0, 2)), batch(5, 1, 10, 9), OUT_OF_ORDER);
    check(Some(wrote(0, 2)), batch(5, 1, 10, 11), OUT_OF_ORDER);
    check(Some(wrote(0, 2)), batch(5, 1, 5, 10), OUT_OF_ORDER);
}

#[test]
fn the_sixth_last_batch_is_forgotten() {
    check(Some(wrote(0, 6)), batch(5, 1, 0, 10), OUT_OF_ORDER);
    check(Some(wrote(0, 6)), batch(5, 1, 10, 10), Ok(Some(10)));
}

#[test]
fn sequences_wrap_after_the_largest() {
    check(Some(wrote(i32::MAX - 9, 1)), batch(5, 1, 0, 1), Ok(None));
    check(Some(wrote(i32::MAX - 9, 1)), batch(5, 1, 1, 1), OUT_OF_ORDER);
    check(Some(wrote(i32::MAX - 4, 1)), batch(5, 1, 5, 1), Ok(None));
    check(Some(wrote(i32::MAX - 4, 2)), batch(5, 1, i32::MAX - 4, 10), Ok(Some(0)));
}

#[test]
fn an_older_epoch_is_fenced_and_its_batches_are_no_duplicates() {
    check(Some(wrote(0, 1)), batch(5, 0, 10, 1), Err(ErrorCode::InvalidProducerEpoch));
    check(Some(wrote(0, 1)), batch(5, 0, 0, 10), Err(ErrorCode::InvalidProducerEpoch));
}

#[test]
fn a_newer_epoch_begins_with_sequence_0() {
    check(Some(wrote(0, 1)), batch(5, 2, 0, 1), Ok(None));
    check(Some(wrote(0, 1)), batch(5, 2, 10, 1), OUT_OF_ORDER);
}

#[test]
fn a_newer_epoch_forgets_the_batches_of_the_older() {
    let bumped = ProducerState::after(Some(&wrote(0, 3)), &batch(5, 2, 0, 4), 30, -1, 0);
    assert_eq!(bumped.batches().count(), 1);
    check(Some(bumped), batch(5, 2, 4, 1), Ok(None));
}

#[test]
fn an_unknown_producer_may_begin_anywhere() {
    check(None, batch(5, 1, 1234, 1), Ok(None));
}

#[test]
fn r3_an_unknown_producer_may_not_begin_in_the_middle_of_what_is_unanswered() {
    let follows = |base| BatchMeta { follows: true, ..batch(5, 1, base, 1) };
    check(None, follows(1), OUT_OF_ORDER);
    check(None, follows(0), Ok(None));
    check(Some(wrote(0, 1)), follows(10), Ok(None));
}

#[test]
fn batches_without_a_producer_are_appended() {
    check(None, batch(-1, -1, -1, 1), Ok(None));
}

#[test]
fn impossible_batches_are_invalid() {
    for bad in [batch(-2, 0, 0, 1), batch(5, -1, 0, 1), batch(5, 0, -1, 1), batch(5, 0, 0, 1 << 31).with_delta(1 << 31)]
    {
        check(None, bad, Err(ErrorCode::InvalidRecord));
    }
}

impl BatchMeta {
    fn with_delta(self, last_offset_delta: u32) -> Self {
        Self { last_offset_delta, ..self }
    }
}

#[test]
fn a_producer_expires_a_day_after_its_last_batch() {
    let state = wrote(0, 1);
    assert!(!state.is_expired(PRODUCER_EXPIRATION_MS - 1));
    assert!(state.is_expired(PRODUCER_EXPIRATION_MS));
}

/// Every accepted batch as (epoch, first, last, offset), and the rules read straight from Kafka's words.
#[derive(Default)]
struct Model(Vec<(i16, i32, i32, Offset)>);

impl Model {
    fn place(&self, b: &BatchMeta) -> Result<Option<Offset>, ErrorCode> {
        let last = last_sequence(b);
        let Some(&(epoch, _, last_accepted, _)) = self.0.last() else {
            return if b.follows && b.base_sequence != 0 { OUT_OF_ORDER } else { Ok(None) };
        };
        let recent = self.0.iter().rev().take_while(|k| k.0 == epoch).take(5);
        let mut same = recent.filter(|k| (k.0, k.1, k.2) == (b.producer_epoch, b.base_sequence, last));
        if let Some(first_time) = same.next() {
            return Ok(Some(first_time.3));
        }
        if b.producer_epoch < epoch {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        let due = match b.producer_epoch > epoch {
            true => 0,
            false if last_accepted == i32::MAX => 0,
            false => last_accepted + 1,
        };
        if b.base_sequence == due { Ok(None) } else { OUT_OF_ORDER }
    }
}

proptest! {
    #[test]
    fn any_history_agrees_with_the_model(
        start in prop_oneof![Just(0), Just(i32::MAX - 7)],
        steps in proptest::collection::vec((0i16..3, -6i32..4, 1u32..4, any::<bool>()), 1..60),
    ) {
        let mut model = Model::default();
        let mut state: Option<ProducerState> = None;
        let mut offset = 0;
        for (epoch, step, count, follows) in steps {
            let near = state.map_or(start, |s| s.next_sequence());
            let base = if epoch == 2 && step > 0 { 0 } else { near.saturating_add(step).max(0) };
            let b = BatchMeta { follows, ..batch(5, epoch, base, count) };
            let expected = model.place(&b);
            check(state, b, expected);
            if expected == Ok(None) {
                model.0.push((epoch, base, last_sequence(&b), offset));
                state = Some(ProducerState::after(state.as_ref(), &b, offset, -1, 0));
                offset += i64::from(count);
            }
        }
    }
}
