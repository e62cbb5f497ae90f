//! Looks for a record inside a batch by its timestamp, also inside a compressed one.
//!
//! A search is bounded: it goes on in steps of the caller's choice, so that nobody waits behind a large batch, and it
//! gives up after [`MOST_RECORD_BYTES`]. What cannot be searched, because it is larger than that or because its bytes
//! make no sense, is answered as a whole batch, its base offset with its max timestamp, and says so
//! ([`Precision::BatchGranularity`]). That is never after the right record, so a consumer that seeks there misses
//! nothing.

use std::io::Read;

use super::decompress;
use super::header::{BatchHeader, HEADER_SIZE, HeaderError};
use crate::types::TimestampMs;

/// Record bytes, decompressed, that are looked at in one batch. A hundred times what `max.message.bytes` is by default,
/// so only a batch that is mostly repetition holds more.
pub const MOST_RECORD_BYTES: usize = 128 << 20;
/// The buffer between a decoder and the records.
const BUFFER: usize = 16 << 10;

/// How close an answer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precision {
    Exact,
    /// The batch holds the record, at or after this offset.
    BatchGranularity,
}

/// A record found by its timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundRecord {
    /// To be added to the batch's base offset.
    pub offset_delta: i32,
    pub timestamp: TimestampMs,
    pub precision: Precision,
}

/// Which record is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// The first with at least this timestamp.
    AtOrAfter(TimestampMs),
    /// The one with the largest timestamp; of several, the first.
    MaxTimestamp,
}

/// Where a search is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// There is more to look at.
    More,
    Done(Option<FoundRecord>),
}

/// One search in one batch.
pub struct RecordSearch<'a> {
    records: Records<'a>,
    wanted: Wanted,
    from_delta: i32,
    best: Option<FoundRecord>,
    max_timestamp: TimestampMs,
}

impl<'a> RecordSearch<'a> {
    /// Looks in `batch`, among the records from `from_delta` on.
    pub fn new(batch: &'a [u8], wanted: Wanted, from_delta: i32) -> Result<Self, HeaderError> {
        Self::bounded(batch, wanted, from_delta, MOST_RECORD_BYTES)
    }

    fn bounded(batch: &'a [u8], wanted: Wanted, from_delta: i32, limit: usize) -> Result<Self, HeaderError> {
        let header = BatchHeader::parse(batch)?;
        let records = Records::of(batch, &header, limit);
        Ok(Self { records, wanted, from_delta, best: None, max_timestamp: header.max_timestamp })
    }

    /// Looks at about this many record bytes.
    pub fn advance(&mut self, bytes: usize) -> Progress {
        let until = self.records.taken.saturating_add(bytes);
        while self.records.taken < until {
            if self.records.pass_rest(until).is_err() {
                return Progress::Done(self.whole_batch());
            }
            if self.records.rest > 0 {
                break;
            }
            match self.records.next() {
                None => return Progress::Done(self.best),
                Some(Err(Unreadable)) => return Progress::Done(self.whole_batch()),
                Some(Ok(record)) if record.offset_delta < self.from_delta => {}
                Some(Ok(record)) => match self.wanted {
                    Wanted::AtOrAfter(target) if record.timestamp >= target => return Progress::Done(Some(record)),
                    Wanted::AtOrAfter(_) => {}
                    Wanted::MaxTimestamp => {
                        if self.best.is_none_or(|best| record.timestamp > best.timestamp) {
                            self.best = Some(record);
                        }
                    }
                },
            }
        }
        Progress::More
    }

    fn whole_batch(&self) -> Option<FoundRecord> {
        let may_hold = match self.wanted {
            Wanted::AtOrAfter(target) => self.max_timestamp >= target,
            Wanted::MaxTimestamp => true,
        };
        may_hold.then_some(FoundRecord {
            offset_delta: self.from_delta.max(0),
            timestamp: self.max_timestamp,
            precision: Precision::BatchGranularity,
        })
    }
}

/// The records are larger than is looked at, or are not what the header says.
struct Unreadable;

/// Walks records; looks only at the first three fields of each.
struct Records<'a> {
    /// None where the block cannot be opened.
    input: Option<Box<dyn Read + Send + Sync + 'a>>,
    buffer: Box<[u8; BUFFER]>,
    /// What of the buffer is still to be read.
    start: usize,
    end: usize,
    /// Record bytes that were passed, and how many may be.
    taken: usize,
    limit: usize,
    left: i32,
    /// What is still to be passed of the record that was looked at last.
    rest: usize,
    next_delta: i32,
    base_timestamp: TimestampMs,
}

impl<'a> Records<'a> {
    fn of(batch: &'a [u8], header: &BatchHeader, limit: usize) -> Self {
        let codec = header.compression_type();
        Self {
            input: codec.and_then(|codec| decompress::open(codec, &batch[HEADER_SIZE..], limit).ok()),
            buffer: Box::new([0; BUFFER]),
            start: 0,
            end: 0,
            taken: 0,
            limit,
            left: header.records_count,
            rest: 0,
            next_delta: 0,
            base_timestamp: header.base_timestamp,
        }
    }

    fn read(&mut self) -> Result<FoundRecord, Unreadable> {
        let length = usize::try_from(self.varint()?).map_err(|_| Unreadable)?;
        let end = self.taken.checked_add(length).ok_or(Unreadable)?;
        let _attributes = self.byte()?;
        let timestamp_delta = self.varint()?;
        let offset_delta = i32::try_from(self.varint()?).map_err(|_| Unreadable)?;
        if offset_delta != self.next_delta {
            // An answer made of it could lie outside the batch, behind records that were never read.
            return Err(Unreadable);
        }
        self.next_delta += 1;
        self.rest = end.checked_sub(self.taken).ok_or(Unreadable)?;
        let timestamp = self.base_timestamp.wrapping_add(timestamp_delta);
        Ok(FoundRecord { offset_delta, timestamp, precision: Precision::Exact })
    }

    /// Passes what is left of the last record, so far as it lies before `until`.
    fn pass_rest(&mut self, until: usize) -> Result<(), Unreadable> {
        let step = self.rest.min(until.saturating_sub(self.taken));
        self.rest -= step;
        self.skip(step)
    }

    /// A zigzag varint of at most ten bytes, as Kafka's `ByteUtils.readVarlong`.
    fn varint(&mut self) -> Result<i64, Unreadable> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(Unreadable)
    }

    fn byte(&mut self) -> Result<u8, Unreadable> {
        if self.start == self.end {
            self.refill()?;
        }
        let byte = self.buffer[self.start];
        self.start += 1;
        self.taken += 1;
        Ok(byte)
    }

    fn skip(&mut self, mut count: usize) -> Result<(), Unreadable> {
        while count > 0 {
            if self.start == self.end {
                self.refill()?;
            }
            let skipped = count.min(self.end - self.start);
            self.start += skipped;
            self.taken += skipped;
            count -= skipped;
        }
        Ok(())
    }

    fn refill(&mut self) -> Result<(), Unreadable> {
        if self.taken >= self.limit {
            return Err(Unreadable);
        }
        let input = self.input.as_mut().ok_or(Unreadable)?;
        self.start = 0;
        self.end = input.read(&mut self.buffer[..]).map_err(|_| Unreadable)?;
        if self.end == 0 { Err(Unreadable) } else { Ok(()) }
    }
}

impl Iterator for Records<'_> {
    type Item = Result<FoundRecord, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left <= 0 {
            return None;
        }
        self.left -= 1;
        let record = self.read();
        if record.is_err() {
            self.left = 0;
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::header::CompressionType;
    use super::super::testing::BatchBuilder;
    use super::*;

    const CODECS: [CompressionType; 5] = [
        CompressionType::None,
        CompressionType::Gzip,
        CompressionType::Snappy,
        CompressionType::Lz4,
        CompressionType::Zstd,
    ];

    /// Runs a search to its end, in steps.
    fn run(mut search: RecordSearch<'_>, step: usize) -> Option<FoundRecord> {
        loop {
            if let Progress::Done(found) = search.advance(step) {
                return found;
            }
        }
    }

    fn find(batch: &[u8], wanted: Wanted, from_delta: i32) -> Option<FoundRecord> {
        run(RecordSearch::new(batch, wanted, from_delta).expect("a header"), 1000)
    }

    fn exact(offset_delta: i32, timestamp: i64) -> Option<FoundRecord> {
        Some(FoundRecord { offset_delta, timestamp, precision: Precision::Exact })
    }

    fn whole(offset_delta: i32, timestamp: i64) -> Option<FoundRecord> {
        Some(FoundRecord { offset_delta, timestamp, precision: Precision::BatchGranularity })
    }

    #[test]
    fn timestamps_need_not_grow_inside_a_batch() {
        use Wanted::{AtOrAfter, MaxTimestamp};
        for codec in CODECS {
            let batch = BatchBuilder::new().timestamps(&[1000, 5000, 3000, 5000]).compression(codec).build();
            for (wanted, from_delta, expected) in [
                (AtOrAfter(0), 0, exact(0, 1000)),
                (AtOrAfter(2000), 0, exact(1, 5000)),
                (AtOrAfter(2000), 2, exact(2, 3000)),
                (AtOrAfter(5000), 2, exact(3, 5000)),
                (AtOrAfter(5001), 0, None),
                (AtOrAfter(0), 4, None),
                (MaxTimestamp, 0, exact(1, 5000)),
                (MaxTimestamp, 2, exact(3, 5000)),
            ] {
                assert_eq!(find(&batch, wanted, from_delta), expected, "{codec:?} {wanted:?} from {from_delta}");
            }
        }
    }

    #[test]
    fn what_cannot_be_searched_answers_as_a_whole() {
        // The codec says zstd, the bytes are something else.
        let nonsense = BatchBuilder::new().timestamps(&[1000, 5000]).attributes(4).build();
        // The records are fewer than the header says.
        let missing = BatchBuilder::new().timestamps(&[1000, 5000]).records_count(3).build();
        let unknown_codec = BatchBuilder::new().timestamps(&[1000, 5000]).attributes(5).build();
        for batch in [nonsense, unknown_codec] {
            assert_eq!(find(&batch, Wanted::AtOrAfter(2000), 0), whole(0, 5000));
            assert_eq!(find(&batch, Wanted::AtOrAfter(2000), 1), whole(1, 5000));
            assert_eq!(find(&batch, Wanted::AtOrAfter(5001), 0), None);
            assert_eq!(find(&batch, Wanted::MaxTimestamp, 0), whole(0, 5000));
        }
        assert_eq!(find(&missing, Wanted::MaxTimestamp, 0), whole(0, 5000));
        assert_eq!(find(&missing, Wanted::AtOrAfter(2000), 0), exact(1, 5000), "found before the end");
    }

    #[test]
    fn a_bomb_is_given_up_after_the_limit() {
        for codec in CODECS {
            let bomb = BatchBuilder::new().timestamps(&[1, 2, 3]).value_len(2 << 20).compression(codec).build();
            let search = |limit| {
                let mut search = RecordSearch::bounded(&bomb, Wanted::MaxTimestamp, 0, limit).expect("a header");
                let found = loop {
                    if let Progress::Done(found) = search.advance(64 << 10) {
                        break found;
                    }
                };
                (found, search.records.taken)
            };
            assert_eq!(search(16 << 20).0, exact(2, 3), "{codec:?}");
            let (found, taken) = search(1 << 20);
            assert_eq!(found, whole(0, 3), "{codec:?}");
            assert!(taken <= (1 << 20) + BUFFER, "{codec:?} went on to {taken}");
        }
    }

    #[test]
    fn a_search_goes_on_in_steps() {
        let batch = BatchBuilder::new().records(1000).compression(CompressionType::Zstd).build();
        let mut search = RecordSearch::new(&batch, Wanted::AtOrAfter(900), 0).expect("a header");
        assert_eq!(search.advance(100), Progress::More);
        assert_eq!(run(search, 100), exact(900, 900));
    }

    #[test]
    fn a_large_record_is_passed_in_steps_too() {
        for codec in CODECS {
            let batch = BatchBuilder::new().timestamps(&[1, 2]).value_len(4 << 20).compression(codec).build();
            let mut search = RecordSearch::new(&batch, Wanted::MaxTimestamp, 0).expect("a header");
            let mut passed = 0;
            while search.advance(64 << 10) == Progress::More {
                let step = search.records.taken - passed;
                assert!(step <= (64 << 10) + BUFFER, "{codec:?} took {step} at once");
                passed = search.records.taken;
            }
        }
    }

    #[test]
    fn a_record_that_lies_about_its_offset_is_not_an_answer() {
        for (record, delta) in [(0, 63), (0, -1), (1, 0), (1, 2)] {
            let mut batch = BatchBuilder::new().timestamps(&[1000, 5000]).build().to_vec();
            let first = HEADER_SIZE;
            let second = first + 1 + usize::from(batch[first] / 2);
            // Behind the length, the attributes and the timestamp delta, which takes two bytes in the second.
            let at = [first + 3, second + 4][record];
            batch[at] = ((delta << 1) ^ (delta >> 31)) as u8;
            assert_eq!(find(&batch, Wanted::MaxTimestamp, 0), whole(0, 5000), "{record} at {delta}");
            let target = [1000, 5000][record];
            assert_eq!(find(&batch, Wanted::AtOrAfter(target), 0), whole(0, 5000), "{record} at {delta}");
        }
    }

    /// The same by looking at every record.
    fn naive(timestamps: &[i64], wanted: Wanted, from: usize) -> Option<FoundRecord> {
        let mut all = (0i32..).zip(timestamps).skip(from).map(|(delta, timestamp)| (delta, *timestamp));
        let found = match wanted {
            Wanted::AtOrAfter(target) => all.find(|(_, timestamp)| *timestamp >= target),
            Wanted::MaxTimestamp => all.reduce(|best, next| if next.1 > best.1 { next } else { best }),
        };
        found.and_then(|(delta, timestamp)| exact(delta, timestamp))
    }

    proptest! {
        #[test]
        fn a_search_finds_what_looking_at_every_record_finds(
            timestamps in prop::collection::vec(0..100i64, 1..80),
            codec in prop::sample::select(CODECS.to_vec()),
            value_len in 0..400usize,
            target in 0..110i64,
            from in 0..90usize,
            step in 1..5000usize,
        ) {
            let batch = BatchBuilder::new().timestamps(&timestamps).value_len(value_len).compression(codec).build();
            for wanted in [Wanted::AtOrAfter(target), Wanted::MaxTimestamp] {
                let from_delta = i32::try_from(from).expect("small");
                let search = RecordSearch::new(&batch, wanted, from_delta).expect("a header");
                prop_assert_eq!(run(search, step), naive(&timestamps, wanted, from));
            }
        }

        #[test]
        fn no_records_make_it_panic(
            tail in prop::collection::vec(any::<u8>(), 0..100), count in any::<i32>(), codec in 0..8i16,
        ) {
            let mut batch = BatchBuilder::new().attributes(codec).records_count(count).build().to_vec();
            batch.truncate(HEADER_SIZE);
            batch.extend(tail);
            let _ = find(&batch, Wanted::MaxTimestamp, 0);
            let _ = find(&batch, Wanted::AtOrAfter(5), 0);
        }

        #[test]
        fn no_damage_makes_it_panic(
            codec in prop::sample::select(CODECS.to_vec()), at: prop::sample::Index, byte: u8,
        ) {
            let mut batch = BatchBuilder::new().records(50).compression(codec).build().to_vec();
            let at = HEADER_SIZE + at.index(batch.len() - HEADER_SIZE);
            batch[at] = byte;
            let _ = find(&batch, Wanted::MaxTimestamp, 0);
        }
    }
}
