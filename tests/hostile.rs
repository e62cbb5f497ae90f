//! Hostile bytes at every place where bytes come in. The same functions run under libFuzzer (`tests/fuzz`); here they
//! run on its corpus, on changed pieces of it, and on bytes by chance. `PROPTEST_CASES` says how many (256).

#[path = "fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "a crate of its own for the fuzz targets")]
mod hostile_input;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hostile_input::{MESSAGE_BYTES, within};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, ApiVersionsRequest, DeleteTopicsRequest, FindCoordinatorRequest, MetadataRequest,
};
use kafka_protocol::protocol::Request;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use sidestream::wire::api_versions::{Api, Handler, Listener};
use sidestream::wire::{self, WireError, fetch_request::FetchRequest, produce_request::ProduceRequest};

type EntryPoint = fn(&[u8]);

const ENTRY_POINTS: [(&str, EntryPoint); 6] = [
    ("frame", hostile_input::frame),
    ("request", hostile_input::request),
    ("response", hostile_input::response),
    ("record_batch", hostile_input::record_batch),
    ("stored", hostile_input::stored),
    ("configuration", hostile_input::configuration),
];

/// Memory is counted for the whole process, so one test measures at a time.
fn alone() -> MutexGuard<'static, ()> {
    static MEASURING: Mutex<()> = Mutex::new(());
    MEASURING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is committed of a target's corpus.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(directory).expect("a corpus").map(|e| e.expect("an entry").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("a file")).collect()
}

/// An input that was changed in one place.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Cut(Index),
    /// The largest numbers of one to five bytes, as lengths and counts have them.
    Huge(Index, usize),
}

impl Change {
    fn apply(&self, input: &mut Vec<u8>) {
        let place = |at: &Index, input: &Vec<u8>| at.index(input.len() + 1);
        match self {
            Self::Set(at, byte) if !input.is_empty() => {
                let at = at.index(input.len());
                input[at] = *byte;
            }
            Self::Flip(at, bit) if !input.is_empty() => {
                let at = at.index(input.len());
                input[at] ^= 1 << (bit % 8);
            }
            Self::Insert(at, bytes) => {
                let at = place(at, input);
                input.splice(at..at, bytes.iter().copied());
            }
            Self::Remove(at, count) => {
                let at = place(at, input);
                let end = (at + count).min(input.len());
                input.drain(at..end);
            }
            Self::Cut(at) => input.truncate(place(at, input)),
            Self::Huge(at, width) => {
                let at = place(at, input);
                let end = (at + width).min(input.len());
                input.splice(at..end, [0x7f, 0xff, 0xff, 0xff, 0xff].into_iter().take(*width));
            }
            Self::Set(..) | Self::Flip(..) => {}
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (at(), any::<u8>()).prop_map(|(at, bit)| Change::Flip(at, bit)),
        (at(), vec(any::<u8>(), 1..20)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (at(), 1usize..20).prop_map(|(at, count)| Change::Remove(at, count)),
        at().prop_map(Change::Cut),
        (at(), 1usize..=5).prop_map(|(at, width)| Change::Huge(at, width)),
    ]
}

fn changed(target: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    (select(corpus(target)), vec(change(), 1..6)).prop_map(|(mut input, changes)| {
        changes.iter().for_each(|change| change.apply(&mut input));
        input
    })
}

/// What fails is printed, not kept: the corpus is where it belongs.
fn by_chance() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

#[test]
fn the_corpus_of_the_fuzzers_harms_nobody() {
    let _alone = alone();
    for (target, run) in ENTRY_POINTS {
        let inputs = corpus(target);
        assert!(inputs.len() >= 5, "{target} has a corpus");
        inputs.iter().for_each(|input| run(input));
    }
}

#[test]
fn changed_pieces_of_the_corpus_harm_nobody() {
    let _alone = alone();
    for (target, run) in ENTRY_POINTS {
        let mut runner = proptest::test_runner::TestRunner::new(by_chance());
        let result = runner.run(&changed(target), |input| {
            run(&input);
            Ok(())
        });
        result.unwrap_or_else(|failure| panic!("{target}: {failure}"));
    }
}

#[test]
fn bytes_by_chance_harm_nobody() {
    let _alone = alone();
    for (target, run) in ENTRY_POINTS {
        let mut runner = proptest::test_runner::TestRunner::new(by_chance());
        let result = runner.run(&vec(any::<u8>(), 0..300), |input| {
            run(&input);
            Ok(())
        });
        result.unwrap_or_else(|failure| panic!("{target}: {failure}"));
    }
}

#[test]
fn every_request_that_a_door_reads_has_an_entry_point() {
    let known = hostile_input::request_keys();
    for key in 0..1000 {
        let doors = [Listener::VirtualBroker, Listener::Mapped].map(|door| Api::of(key).handler(door));
        if doors.iter().any(|handler| matches!(handler, Handler::Inspect | Handler::Rewrite | Handler::Local)) {
            assert!(known.contains(&key), "API key {key} is read, but no entry point tries it");
        }
    }
}

/// The largest frame there may be, full of the smallest elements: what the limits on elements are for.
fn dense(prefix: &[u8], element: &[u8], suffix: &[u8], count: usize, flexible: bool) -> Bytes {
    let mut body = prefix.to_vec();
    if flexible {
        let mut rest = count + 1;
        while rest >= 0x80 {
            body.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        body.push(rest as u8);
    } else {
        body.extend_from_slice(&u32::try_from(count).expect("a count").to_be_bytes());
    }
    body.extend(element.iter().copied().cycle().take(element.len() * count));
    body.extend_from_slice(suffix);
    body.into()
}

/// Reads as many elements as are believed, and one more.
fn at_the_limit<R: Request>(version: i16, body: impl Fn(usize) -> Bytes) {
    const MOST: usize = 250_000;
    let most = body(MOST);
    let read = within(most.len(), MESSAGE_BYTES, || wire::decode_request::<R>(version, most.clone()).map(drop));
    assert_eq!(read, Ok(()), "{} in version {version}", std::any::type_name::<R>());
    let more = body(MOST + 1);
    let refused = within(more.len(), 1024, || wire::decode_request::<R>(version, more.clone()).map(drop));
    assert_eq!(refused, Err(WireError::TooManyElements { limit: MOST }));
}

#[test]
fn requests_full_of_the_smallest_elements_stay_within_their_memory() {
    let _alone = alone();
    at_the_limit::<MetadataRequest>(1, |n| dense(&[], &[0, 0], &[], n, false));
    at_the_limit::<MetadataRequest>(9, |n| dense(&[], &[1, 0], &[0, 0, 0, 0], n, true));
    at_the_limit::<FindCoordinatorRequest>(4, |n| dense(&[0], &[1], &[0], n, true));
    at_the_limit::<DeleteTopicsRequest>(1, |n| dense(&[], &[0, 0], &[0; 4], n, false));
    at_the_limit::<AddPartitionsToTxnRequest>(3, |n| {
        dense(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[1, 1, 0], &[0], n, true)
    });
    // Empty names, and a thousand fields of tag 72 and size 1, counted without the 1 that arrays add.
    let tags = dense(&[1, 1], &[72, 1, 0], &[], 1000 - 1, true);
    let tags = [&tags[..], &[72, 1, 0]].concat();
    let tags = Bytes::from(tags);
    let read = within(tags.len(), MESSAGE_BYTES, || wire::decode_request::<ApiVersionsRequest>(3, tags.clone()));
    assert!(read.is_ok(), "a thousand unknown tagged fields are read: {read:?}");
}

#[test]
fn produce_and_fetch_full_of_the_smallest_elements_stay_within_their_memory() {
    let _alone = alone();
    const MOST: usize = 200_000;
    let produce = |n| dense(&[0, 0, 1, 0, 0, 0, 0], &[1, 1, 0], &[0], n, true);
    let fetch = |n| dense(&[0; 21], &[0, 0, 0, 0, 0, 0], &[0; 4], n, false);
    let read_produce = |body: &Bytes| ProduceRequest::read(9, body).map(drop);
    let read_fetch = |body: &Bytes| FetchRequest::read(7, body).map(drop);
    for (count, expected) in [(MOST, Ok(())), (MOST + 1, Err(WireError::TooManyElements { limit: MOST }))] {
        let body = produce(count);
        assert_eq!(within(body.len(), MESSAGE_BYTES, || read_produce(&body)), expected);
        let mut body = fetch(count).to_vec();
        // The session id and epoch stand before the topics.
        body.splice(17..17, [0; 4]);
        let body = Bytes::from(body);
        assert_eq!(within(body.len(), MESSAGE_BYTES, || read_fetch(&body)), expected);
    }
}
