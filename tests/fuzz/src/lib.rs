//! The places where bytes from outside come in, each as a function of bytes that must not panic.
//!
//! The fuzz targets call them with what libFuzzer finds, `tests/hostile.rs` with what proptest makes. Each holds what
//! was read to a bound of memory: four times the input and a constant.

mod log;
mod messages;

use bytes::Bytes;
use peak_alloc::PeakAlloc;
use sidestream::config::Config;
use sidestream::record_batch::{
    BatchHeader, Limits, Progress, RecordSearch, ServeAs, Wanted, checksum, crc_is_valid, patch, validate,
};
use sidestream::wal_segment::{TRAILER_SIZE, batch_ranges, index_range, parse_object_key, read_object};
use sidestream::wire::frame;

pub use messages::{request, request_keys, response};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Messages of Kafka: an element of one or two bytes can become 36 in memory, one of ten bytes a hundred. How many are
/// believed is bounded (250,000 in a request), and so this is.
pub const MESSAGE_BYTES: usize = 32 << 20;
/// And no message takes more than this for each of its bytes.
const MOST_PER_BYTE: usize = 48;
/// What a decoder of compressed records may need: its windows, or for snappy, which has none, the whole output.
/// A legacy frame of lz4 has blocks of 8 MiB, one before and one behind the decoder.
const DECODER_BYTES: usize = 17 << 20;
const DECODER_PER_BYTE: usize = 40;
/// Steps of 64 KiB that a search in a batch is followed.
const SEARCH_STEPS: usize = 32;
/// Everything else.
pub const SMALL: usize = 64 << 10;

/// Runs what reads `input` bytes, which may take four times as much memory and a constant; of a few bytes never
/// more than a few times as much.
pub fn within<T>(input: usize, constant: usize, read: impl FnOnce() -> T) -> T {
    bounded((4 * input + constant).min(MOST_PER_BYTE * input + SMALL), input, read)
}

fn bounded<T>(most: usize, input: usize, read: impl FnOnce() -> T) -> T {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let value = read();
    let grown = MEMORY.peak_usage().saturating_sub(before);
    assert!(grown <= most, "{grown} bytes of memory for {input} bytes of input");
    value
}

/// A cut of at most `at` bytes.
fn split(input: &[u8], at: usize) -> (&[u8], &[u8]) {
    input.split_at(at.min(input.len()))
}

/// A frame as it comes from a socket: its length, its header, and its body as whatever the header says.
pub fn frame(input: &[u8]) {
    let Some((prefix, rest)) = input.split_first_chunk::<4>() else { return };
    let limit = frame::DEFAULT_MAX_FRAME_BYTES;
    let _ = frame::response_length(*prefix, limit);
    match frame::request_length(*prefix, limit) {
        Ok(length) => assert!((frame::SHORTEST_REQUEST_BYTES..=limit).contains(&length)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let header = within(rest.len(), SMALL, || frame::parse_request_header(rest));
    let Ok(header) = header else { return };
    assert!((8..=rest.len()).contains(&header.body_start));
    if let Some(client_id) = &header.client_id {
        assert!(client_id.start >= 8 && client_id.end <= header.body_start);
    }
    for cut in (8..header.body_start).take(100) {
        assert!(frame::parse_request_header(&rest[..cut]).is_err(), "a header is whole or an error");
    }
    let body = Bytes::copy_from_slice(&rest[header.body_start..]);
    messages::read_request(header.api_key, header.api_version, &body);
}

const LIMITS: Limits = Limits {
    max_message_bytes: i32::MAX,
    timestamp_before_max_ms: i64::MAX,
    timestamp_after_max_ms: i64::MAX,
    log_append_time: false,
    now: 0,
};

/// A record batch, once as it is and once with its length and CRC put right, so that what lies behind them is reached.
pub fn record_batch(input: &[u8]) {
    let (choice, batch) = split(input, 9);
    let Ok(choice) = <[u8; 9]>::try_from(choice) else { return };
    judge(&choice, batch);
    let mut mended = batch.to_vec();
    if mended.len() >= 61 {
        let length = u32::try_from(mended.len() - 12).unwrap_or(0);
        mended[8..12].copy_from_slice(&length.to_be_bytes());
        mended[16] = 2;
        let crc = checksum([&mended[21..]]).to_be_bytes();
        mended[17..21].copy_from_slice(&crc);
        judge(&choice, &mended);
    }
}

fn judge(choice: &[u8; 9], batch: &[u8]) {
    let target = i64::from_be_bytes(choice[..8].try_into().expect("eight bytes"));
    for wanted in [Wanted::MaxTimestamp, Wanted::AtOrAfter(target)] {
        bounded(DECODER_PER_BYTE * batch.len() + DECODER_BYTES, batch.len(), || {
            let Ok(mut search) = RecordSearch::new(batch, wanted, i32::from(choice[8])) else { return };
            let _ = (0..SEARCH_STEPS).any(|_| search.advance(64 << 10) != Progress::More);
        });
    }
    let taken = within(batch.len(), SMALL, || validate(batch, &LIMITS));
    let bytes = Bytes::copy_from_slice(batch);
    let cut = usize::from(choice[8]).min(bytes.len());
    let pieces = [bytes.slice(..cut), bytes.slice(cut..)];
    let Ok(header) = taken else {
        let _ = crc_is_valid(&pieces);
        return;
    };
    assert_eq!(BatchHeader::parse(batch), Ok(header));
    assert_eq!(header.size_in_bytes(), Some(batch.len()));
    assert!(header.last_offset_delta >= 0 && header.records_count > 0);
    assert!(crc_is_valid(&pieces));
    for log_append_time in [None, Some(target)] {
        let serve = ServeAs { base_offset: 77, leader_epoch: 3, log_append_time };
        let mut served = Vec::new();
        within(batch.len(), SMALL, || patch(&pieces, serve, &mut served)).expect("a whole header");
        assert!(crc_is_valid(&served), "a served batch has a valid CRC");
        let served = served.concat();
        assert_eq!(served.len(), batch.len());
        assert_eq!(served[61..], batch[61..], "records are served as they came");
    }
}

/// What is read back from the object store and the metadata log. The first byte says which.
pub fn stored(input: &[u8]) {
    let Some((choice, input)) = input.split_first() else { return };
    match choice % 4 {
        0 => segment(input),
        1 => segment(&with_valid_trailer(input)),
        2 => log::record(input),
        _ => log::history(input),
    }
    if let Ok(key) = std::str::from_utf8(input) {
        let _ = within(input.len(), SMALL, || parse_object_key(key).is_ok());
    }
}

fn segment(object: &[u8]) {
    if let Some(trailer) = object.last_chunk::<TRAILER_SIZE>()
        && let Ok(range) = index_range(trailer, object.len() as u64)
    {
        assert!(range.start >= 1 && range.end <= object.len() as u64);
    }
    let Ok(index) = within(object.len(), SMALL, || read_object(object)) else { return };
    let mut end = 1;
    for (_, _, range) in batch_ranges(&index.partitions) {
        assert_eq!(range.start, end, "batches lie one behind the other");
        end = range.end;
    }
    assert!(end < object.len() as u64, "the last batch ends before the index");
}

/// The input as a segment with an index: the first two bytes say how long the index is.
fn with_valid_trailer(input: &[u8]) -> Vec<u8> {
    let Some((length, rest)) = input.split_first_chunk::<2>() else { return Vec::new() };
    let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
    let (body, index) = rest.split_at(rest.len() - length);
    let mut object = vec![0];
    object.extend_from_slice(body);
    object.extend_from_slice(index);
    object.extend_from_slice(&checksum([index]).to_le_bytes());
    object.extend_from_slice(&u32::try_from(length).unwrap_or(0).to_le_bytes());
    object.extend_from_slice(b"SIDEWAL0");
    object
}

/// A setting of four bytes becomes a name, a value and a place in three maps, and its file is the operator's own: what
/// is held here is that memory grows with the file's size and not faster.
const MEMORY_PER_CONFIGURATION_BYTE: usize = 400;

/// The text of a configuration file; behind a zero byte comes a `--set` argument.
pub fn configuration(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mut parts = text.split('\0');
    let file = parts.next().unwrap_or_default();
    let arguments: Vec<String> = parts.map(str::to_owned).collect();
    let parsed = within(text.len() * MEMORY_PER_CONFIGURATION_BYTE, 4 << 20, || {
        Config::parse(file, &arguments, |_| None).map(drop)
    });
    if let Err(mistakes) = parsed {
        assert!(!mistakes.is_empty() && mistakes.iter().all(|m| !m.is_empty()), "a refusal says why: {mistakes:?}");
    }
}
