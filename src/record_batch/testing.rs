//! Builds record batches for tests, valid ones and broken ones. A field that is set by hand is written as given;
//! the CRC always matches the bytes, so that a test breaks one thing at a time.

use std::io::Write as _;

use bytes::Bytes;

use super::header::{CompressionType, HEADER_SIZE, LOG_OVERHEAD};
use super::pieces::checksum;

/// A batch with defaults that are valid: one record, no producer id, timestamps from 0.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    base_offset: i64,
    magic: i8,
    attributes: i16,
    compressed: CompressionType,
    timestamps: Vec<i64>,
    value: Vec<u8>,
    producer: (i64, i16, i32),
    batch_length: Option<i32>,
    last_offset_delta: Option<i32>,
    records_count: Option<i32>,
    max_timestamp: Option<i64>,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self {
            base_offset: 0,
            magic: 2,
            attributes: 0,
            compressed: CompressionType::None,
            timestamps: vec![0],
            value: b"value".to_vec(),
            producer: (-1, -1, -1),
            batch_length: None,
            last_offset_delta: None,
            records_count: None,
            max_timestamp: None,
        }
    }
}

macro_rules! fields {
    ($($name:ident: $type:ty,)+) => {
        impl BatchBuilder {
            $(#[must_use]
            pub fn $name(mut self, $name: $type) -> Self {
                self.$name = $name.into();
                self
            })+
        }
    };
}

fields! {
    base_offset: i64,
    magic: i8,
    attributes: i16,
    batch_length: i32,
    last_offset_delta: i32,
    records_count: i32,
    max_timestamp: i64,
    value: &[u8],
}

impl BatchBuilder {
    pub fn new() -> Self {
        Self::default()
    }

    /// This many records, each a millisecond after the one before.
    #[must_use]
    pub fn records(mut self, count: usize) -> Self {
        let first = self.timestamps[0];
        self.timestamps = (first..).take(count).collect();
        self
    }

    /// The timestamp of the first record.
    #[must_use]
    pub fn timestamp(mut self, first: i64) -> Self {
        self.timestamps = (first..).take(self.timestamps.len()).collect();
        self
    }

    /// One record for each timestamp.
    #[must_use]
    pub fn timestamps(mut self, timestamps: &[i64]) -> Self {
        self.timestamps = timestamps.to_vec();
        self
    }

    /// Values of this many bytes.
    #[must_use]
    pub fn value_len(mut self, len: usize) -> Self {
        self.value = vec![b'v'; len];
        self
    }

    #[must_use]
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        self.producer = (id, epoch, base_sequence);
        self
    }

    /// Compresses the records, and says so in the attributes.
    #[must_use]
    pub fn compression(mut self, codec: CompressionType) -> Self {
        self.attributes = self.attributes & !7 | codec as i16;
        self.compressed = codec;
        self
    }

    pub fn build(&self) -> Bytes {
        let records = compress(self.compressed, &self.records_bytes());
        let count = i32::try_from(self.timestamps.len()).expect("few records");
        let length = i32::try_from(HEADER_SIZE - LOG_OVERHEAD + records.len()).expect("a small batch");
        let max_timestamp = self.timestamps.iter().max().copied().expect("at least one record");
        let mut covered = Vec::new();
        covered.extend(self.attributes.to_be_bytes());
        covered.extend(self.last_offset_delta.unwrap_or(count - 1).to_be_bytes());
        covered.extend(self.timestamps[0].to_be_bytes());
        covered.extend(self.max_timestamp.unwrap_or(max_timestamp).to_be_bytes());
        covered.extend(self.producer.0.to_be_bytes());
        covered.extend(self.producer.1.to_be_bytes());
        covered.extend(self.producer.2.to_be_bytes());
        covered.extend(self.records_count.unwrap_or(count).to_be_bytes());
        covered.extend(records);
        let mut batch = Vec::new();
        batch.extend(self.base_offset.to_be_bytes());
        batch.extend(self.batch_length.unwrap_or(length).to_be_bytes());
        batch.extend((-1i32).to_be_bytes());
        batch.extend(self.magic.to_be_bytes());
        batch.extend(checksum([&covered[..]]).to_be_bytes());
        batch.extend(covered);
        batch.into()
    }

    fn records_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (delta, timestamp) in (0i64..).zip(&self.timestamps) {
            let mut record = vec![0];
            put_varint(&mut record, timestamp - self.timestamps[0]);
            put_varint(&mut record, delta);
            put_varint(&mut record, -1);
            put_varint(&mut record, i64::try_from(self.value.len()).expect("a small value"));
            record.extend(&self.value);
            put_varint(&mut record, 0);
            put_varint(&mut out, i64::try_from(record.len()).expect("a small record"));
            out.extend(record);
        }
        out
    }
}

/// One block as a client would write it; snappy without the framing of snappy-java.
pub fn compress(codec: CompressionType, bytes: &[u8]) -> Vec<u8> {
    match codec {
        CompressionType::None => bytes.to_vec(),
        CompressionType::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).expect("memory takes it");
            encoder.finish().expect("memory takes it")
        }
        CompressionType::Snappy => snap::raw::Encoder::new().compress_vec(bytes).expect("it is small"),
        CompressionType::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(bytes).expect("memory takes it");
            encoder.finish().expect("memory takes it")
        }
        CompressionType::Zstd => zstd::encode_all(bytes, 3).expect("memory takes it"),
    }
}

fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
