//! Skims a Produce request, versions 3 to 9, while its bytes flow by: topic names and acks, nothing else.
//!
//! A pure state machine fed with chunks of any size. It holds at most one topic name, and passes over record
//! bytes by their length, without a look at them. A name is told before any byte of its partitions is taken, so
//! whoever forwards the chunks still can stop before the frame is whole.

use super::WireError;
use super::produce_request::{check_version, is_flexible};

/// What was seen in the bytes that were fed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Skimmed<'a> {
    /// Comes first, once. 0 means that no response is expected.
    Acks(i16),
    /// The name of a topic, as bytes: compare it with names, do not trust it to be UTF-8.
    Topic(&'a [u8]),
}

/// Skims one request body.
#[derive(Debug)]
pub struct ProduceSkim {
    flexible: bool,
    /// Bytes of the body that have not been fed yet.
    remaining: usize,
    place: Place,
    wanted: Wanted,
    name: Vec<u8>,
    topics_left: usize,
    partitions_left: usize,
    tagged_fields_left: usize,
}

/// Where in the message the wanted bytes lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    TransactionalIdLength,
    TransactionalId,
    Acks,
    TimeoutMs,
    TopicCount,
    NameLength,
    Name,
    PartitionCount,
    PartitionIndex,
    RecordsLength,
    Records,
    TaggedFieldCount(Structure),
    Tag(Structure),
    TaggedFieldSize(Structure),
    TaggedField(Structure),
    End,
}

/// Whose tagged fields are being skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Structure {
    Partition,
    Topic,
    Request,
}

/// What the next bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    /// A big-endian number of which `left` bytes are missing.
    Number {
        left: u8,
        value: u32,
    },
    Varint {
        shift: u8,
        value: u64,
    },
    /// Bytes without interest.
    Skip(usize),
    /// Bytes of a topic name.
    Name(usize),
    Nothing,
}

impl ProduceSkim {
    /// Skims a body of `body_length` bytes.
    pub fn new(version: i16, body_length: usize) -> Result<Self, WireError> {
        check_version(version)?;
        let flexible = is_flexible(version);
        let mut skim = Self {
            flexible,
            remaining: body_length,
            place: Place::End,
            wanted: Wanted::Nothing,
            name: Vec::new(),
            topics_left: 0,
            partitions_left: 0,
            tagged_fields_left: 0,
        };
        skim.want_length(Place::TransactionalIdLength, 2);
        Ok(skim)
    }

    /// Whether the whole request has been seen.
    pub fn is_complete(&self) -> bool {
        self.place == Place::End && self.remaining == 0
    }

    /// Takes the next bytes of the body and tells `seen` what passed in them, in order.
    /// After an error the request is bad and nothing more may be fed.
    pub fn feed(&mut self, mut chunk: &[u8], mut seen: impl FnMut(Skimmed<'_>)) -> Result<(), WireError> {
        if chunk.len() > self.remaining {
            return Err(WireError::TrailingBytes { count: chunk.len() - self.remaining });
        }
        while !chunk.is_empty() {
            let taken = self.take(chunk)?;
            chunk = &chunk[taken..];
            self.taken(taken, &mut seen)?;
        }
        Ok(())
    }

    /// How many record bytes come next: they tell nothing, and need not be fed.
    pub fn unseen(&self) -> usize {
        match (self.place, self.wanted) {
            (Place::Records, Wanted::Skip(left)) => left,
            _ => 0,
        }
    }

    /// In place of feeding all record bytes that come next ([`Self::unseen`]), or some of them.
    pub fn pass_over(&mut self, count: usize) -> Result<(), WireError> {
        let left = self.unseen();
        debug_assert!(count <= left, "only record bytes are passed over");
        self.wanted = Wanted::Skip(left - count);
        // A name comes with bytes of its own, so nothing can be seen here.
        self.taken(count, &mut |_| {})
    }

    /// So many bytes were taken: goes on with what they completed.
    fn taken(&mut self, count: usize, seen: &mut impl FnMut(Skimmed<'_>)) -> Result<(), WireError> {
        self.remaining -= count;
        while let Some(value) = self.arrived() {
            self.advance(value, seen)?;
        }
        if self.remaining == 0 && self.place != Place::End {
            return Err(WireError::Truncated { field: self.field() });
        }
        Ok(())
    }

    /// Takes bytes towards what is wanted, and says how many.
    fn take(&mut self, chunk: &[u8]) -> Result<usize, WireError> {
        match self.wanted {
            Wanted::Nothing => Err(WireError::TrailingBytes { count: self.remaining }),
            Wanted::Number { left, value } => {
                self.wanted = Wanted::Number { left: left - 1, value: value << 8 | u32::from(chunk[0]) };
                Ok(1)
            }
            Wanted::Varint { shift, value } => {
                let value = value | u64::from(chunk[0] & 0x7f) << shift;
                let last = chunk[0] & 0x80 == 0;
                let narrow = u32::try_from(value).ok().filter(|_| last || shift < 28);
                let narrow = narrow.ok_or_else(|| self.bad_length(i64::MAX))?;
                self.wanted = if last {
                    Wanted::Number { left: 0, value: narrow }
                } else {
                    Wanted::Varint { shift: shift + 7, value }
                };
                Ok(1)
            }
            Wanted::Skip(left) => {
                let taken = chunk.len().min(left);
                self.wanted = Wanted::Skip(left - taken);
                Ok(taken)
            }
            Wanted::Name(left) => {
                let taken = chunk.len().min(left);
                self.wanted = Wanted::Name(left - taken);
                self.name.extend_from_slice(&chunk[..taken]);
                Ok(taken)
            }
        }
    }

    /// The value of what was wanted, once it is whole.
    fn arrived(&self) -> Option<u32> {
        match self.wanted {
            Wanted::Number { left: 0, value } => Some(value),
            Wanted::Skip(0) | Wanted::Name(0) => Some(0),
            _ => None,
        }
    }

    /// What was wanted is here: decides what comes next.
    fn advance(&mut self, value: u32, seen: &mut impl FnMut(Skimmed<'_>)) -> Result<(), WireError> {
        match self.place {
            Place::TransactionalIdLength => {
                let length = self.length(value, 2)?.unwrap_or(0);
                self.want(Place::TransactionalId, Wanted::Skip(length));
            }
            Place::TransactionalId => self.want_number(Place::Acks, 2),
            Place::Acks => {
                seen(Skimmed::Acks(value as u16 as i16));
                self.want_number(Place::TimeoutMs, 4);
            }
            Place::TimeoutMs => self.want_length(Place::TopicCount, 4),
            Place::TopicCount => {
                self.topics_left = self.required_length(value, 4)?;
                self.next_topic();
            }
            Place::NameLength => {
                let length = self.required_length(value, 2)?;
                self.name.clear();
                self.want(Place::Name, Wanted::Name(length));
            }
            Place::Name => {
                seen(Skimmed::Topic(&self.name));
                self.want_length(Place::PartitionCount, 4);
            }
            Place::PartitionCount => {
                self.partitions_left = self.required_length(value, 4)?;
                self.next_partition();
            }
            Place::PartitionIndex => self.want_length(Place::RecordsLength, 4),
            Place::RecordsLength => {
                let length = self.length(value, 4)?.unwrap_or(0);
                self.want(Place::Records, Wanted::Skip(length));
            }
            Place::Records => self.end_structure(Structure::Partition),
            Place::TaggedFieldCount(of) => {
                self.tagged_fields_left = self.bounded(value as usize)?;
                self.next_tagged_field(of);
            }
            Place::Tag(of) => self.want(Place::TaggedFieldSize(of), Wanted::Varint { shift: 0, value: 0 }),
            Place::TaggedFieldSize(of) => {
                let size = self.bounded(value as usize)?;
                self.want(Place::TaggedField(of), Wanted::Skip(size));
            }
            Place::TaggedField(of) => self.next_tagged_field(of),
            Place::End => {}
        }
        Ok(())
    }

    fn next_topic(&mut self) {
        if self.topics_left == 0 {
            return self.end_structure(Structure::Request);
        }
        self.topics_left -= 1;
        self.want_length(Place::NameLength, 2);
    }

    fn next_partition(&mut self) {
        if self.partitions_left == 0 {
            return self.end_structure(Structure::Topic);
        }
        self.partitions_left -= 1;
        self.want_number(Place::PartitionIndex, 4);
    }

    fn end_structure(&mut self, of: Structure) {
        if self.flexible {
            self.want(Place::TaggedFieldCount(of), Wanted::Varint { shift: 0, value: 0 });
        } else {
            self.after_structure(of);
        }
    }

    fn next_tagged_field(&mut self, of: Structure) {
        if self.tagged_fields_left == 0 {
            return self.after_structure(of);
        }
        self.tagged_fields_left -= 1;
        self.want(Place::Tag(of), Wanted::Varint { shift: 0, value: 0 });
    }

    fn after_structure(&mut self, of: Structure) {
        match of {
            Structure::Partition => self.next_partition(),
            Structure::Topic => self.next_topic(),
            Structure::Request => self.want(Place::End, Wanted::Nothing),
        }
    }

    fn want(&mut self, place: Place, wanted: Wanted) {
        self.place = place;
        self.wanted = wanted;
    }

    fn want_number(&mut self, place: Place, bytes: u8) {
        self.want(place, Wanted::Number { left: bytes, value: 0 });
    }

    /// A length: a varint where flexible, else a number of `bytes` bytes.
    fn want_length(&mut self, place: Place, bytes: u8) {
        if self.flexible {
            self.want(place, Wanted::Varint { shift: 0, value: 0 });
        } else {
            self.want_number(place, bytes);
        }
    }

    /// The meaning of a length that was read, `None` for null.
    fn length(&self, value: u32, bytes: u8) -> Result<Option<usize>, WireError> {
        let length = match (self.flexible, bytes) {
            (true, _) => i64::from(value) - 1,
            (false, 2) => i64::from(value as u16 as i16),
            (false, _) => i64::from(value as i32),
        };
        match length {
            -1 => Ok(None),
            // Kafka's own limit for strings, whatever the encoding.
            0.. if bytes == 2 && length > i64::from(i16::MAX) => Err(self.bad_length(length)),
            length => {
                let length = usize::try_from(length).map_err(|_| self.bad_length(length))?;
                self.bounded(length).map(Some)
            }
        }
    }

    fn required_length(&self, value: u32, bytes: u8) -> Result<usize, WireError> {
        self.length(value, bytes)?.ok_or_else(|| WireError::Null { field: self.field() })
    }

    /// A length or count that the rest of the body can hold.
    fn bounded(&self, length: usize) -> Result<usize, WireError> {
        if length > self.remaining {
            return Err(WireError::BadCount { field: self.field(), count: length, remaining: self.remaining });
        }
        Ok(length)
    }

    fn bad_length(&self, length: i64) -> WireError {
        WireError::BadLength { field: self.field(), length }
    }

    fn field(&self) -> &'static str {
        match self.place {
            Place::TransactionalIdLength | Place::TransactionalId => "TransactionalId",
            Place::Acks => "Acks",
            Place::TimeoutMs => "TimeoutMs",
            Place::TopicCount => "TopicData",
            Place::NameLength | Place::Name => "Name",
            Place::PartitionCount => "PartitionData",
            Place::PartitionIndex => "Index",
            Place::RecordsLength | Place::Records => "Records",
            Place::TaggedFieldCount(_) | Place::Tag(_) | Place::TaggedFieldSize(_) | Place::TaggedField(_) => {
                "tagged fields"
            }
            Place::End => "the end",
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::wire::produce_request::ProduceRequest;
    use crate::wire::produce_request::tests::{any_request, encode};

    /// Feeds a body in chunks of the given sizes, over and over.
    fn skim(version: i16, body: &[u8], sizes: &[usize]) -> Result<(i16, Vec<Vec<u8>>), WireError> {
        let mut skim = ProduceSkim::new(version, body.len())?;
        let (mut acks, mut names, mut rest) = (i16::MAX, Vec::new(), body);
        for size in sizes.iter().cycle() {
            let (chunk, after) = rest.split_at((*size).min(rest.len()));
            skim.feed(chunk, |seen| match seen {
                Skimmed::Acks(value) => acks = value,
                Skimmed::Topic(name) => names.push(name.to_vec()),
            })?;
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        assert!(skim.is_complete());
        Ok((acks, names))
    }

    proptest! {
        #[test]
        fn any_chunking_gives_what_the_reader_gives(
            request in any_request(),
            version in 3i16..=9,
            sizes in proptest::collection::vec(1usize..50, 1..10),
        ) {
            let body = encode(&request, version);
            let whole = ProduceRequest::read(version, &body).expect("reads");
            let (acks, names) = skim(version, &body, &sizes).expect("skims");
            prop_assert_eq!(acks, whole.acks);
            let expected: Vec<_> = whole.topics.iter().map(|t| t.name.as_bytes().to_vec()).collect();
            prop_assert_eq!(names, expected);
            if !body.is_empty() {
                prop_assert!(skim(version, &body[..body.len() - 1], &sizes).is_err());
            }
        }

        #[test]
        fn records_that_are_passed_over_hide_no_name(request in any_request(), version in 3i16..=9, size in 1usize..400) {
            let body = encode(&request, version);
            let mut skim = ProduceSkim::new(version, body.len()).expect("a version");
            let mut names = Vec::new();
            let mut rest = &body[..];
            while !rest.is_empty() {
                let records = skim.unseen().min(size);
                if records > 0 {
                    skim.pass_over(records).expect("skims");
                    rest = &rest[records..];
                    continue;
                }
                let (byte, tail) = rest.split_at(1);
                let seen = |s: Skimmed<'_>| if let Skimmed::Topic(name) = s { names.push(name.to_vec()) };
                skim.feed(byte, seen).expect("skims");
                rest = tail;
            }
            prop_assert!(skim.is_complete());
            let expected: Vec<_> = request.topic_data.iter().map(|t| t.name.as_bytes().to_vec()).collect();
            prop_assert_eq!(names, expected);
        }

        #[test]
        fn what_the_reader_accepts_the_skim_accepts(
            bytes in proptest::collection::vec(0u8..4, 0..60),
            version in 3i16..=9,
        ) {
            let read = ProduceRequest::read(version, &Bytes::from(bytes.clone()));
            let skimmed = if bytes.is_empty() { Ok((0, vec![])) } else { skim(version, &bytes, &[7]) };
            if let Ok(request) = read {
                prop_assert_eq!(skimmed.expect("skims").1.len(), request.topics.len());
            }
        }
    }

    #[test]
    fn a_name_is_told_before_its_partitions_are_taken() {
        let mut body = vec![0xff, 0xff, 0, 1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 1, b'd'];
        let whole = body.len() + 4 + 4 + 4;
        let mut seen = Vec::new();
        let mut skim = ProduceSkim::new(8, whole).expect("a version");
        skim.feed(&body, |s| seen.push(format!("{s:?}"))).expect("skims");
        assert_eq!(seen, ["Acks(1)", "Topic([100])"]);
        assert!(!skim.is_complete());
        body.clear();
        body.extend([0, 0, 0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        skim.feed(&body, |_| panic!("nothing more to see")).expect("skims");
        assert!(skim.is_complete());
    }

    #[test]
    fn impossible_lengths_are_refused_at_once() {
        let mut skim = ProduceSkim::new(8, 20).expect("a version");
        let claim = [0xff, 0xff, 0, 1, 0, 0, 0, 9, 0x7f, 0xff, 0xff, 0xff];
        assert!(matches!(skim.feed(&claim, |_| {}), Err(WireError::BadCount { field: "TopicData", .. })));
        assert!(ProduceSkim::new(10, 20).is_err());
    }
}
