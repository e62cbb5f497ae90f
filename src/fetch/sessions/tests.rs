//! KIP-227's rules, one by one.

use bytes::Bytes;

use super::*;
use crate::types::TopicId;
use crate::wire::StrBytes;
use crate::wire::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use crate::wire::fetch_response::FetchPartitionResponse;

/// The last version that names topics, and the first with ids.
const NAMES: i16 = 12;
const IDS: i16 = 13;

fn topic(name: &'static str) -> TopicRef {
    TopicRef::Name(StrBytes::from_static_str(name))
}

fn asked(partition: i32, fetch_offset: i64) -> FetchPartition {
    FetchPartition {
        partition,
        current_leader_epoch: -1,
        fetch_offset,
        log_start_offset: -1,
        partition_max_bytes: 1 << 20,
    }
}

fn request(session: (i32, i32), topics: &[(&'static str, &[(i32, i64)])]) -> FetchRequest {
    let named = |(name, partitions): &(&'static str, &[(i32, i64)])| FetchTopic {
        topic: topic(name),
        partitions: partitions.iter().map(|(partition, offset)| asked(*partition, *offset)).collect(),
    };
    FetchRequest {
        session_id: session.0,
        session_epoch: session.1,
        topics: topics.iter().map(named).collect(),
        replica_id: -1,
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 1 << 20,
        isolation_level: 0,
        forgotten: Vec::new(),
        rack_id: StrBytes::new(),
        rack_at: None,
    }
}

/// An answer without error: its high watermark, and how many bytes of records.
fn ok(wanted: &WantedPartition, high_watermark: i64, bytes: usize) -> AnsweredPartition {
    let records = if bytes == 0 { Vec::new() } else { vec![Bytes::from(vec![0; bytes])] };
    let refused = FetchPartitionResponse::refused(wanted.asked.partition, ErrorCode::None);
    let response = FetchPartitionResponse { high_watermark, log_start_offset: 0, records, ..refused };
    AnsweredPartition { wanted: wanted.clone(), response }
}

fn failed(wanted: &WantedPartition) -> AnsweredPartition {
    let response = FetchPartitionResponse::refused(wanted.asked.partition, ErrorCode::KafkaStorageError);
    AnsweredPartition { wanted: wanted.clone(), response }
}

fn places(wanted: &[WantedPartition]) -> Vec<(i32, i64)> {
    wanted.iter().map(|w| (w.asked.partition, w.asked.fetch_offset)).collect()
}

struct Bench {
    sessions: FetchSessions,
    next_id: i32,
    now: i64,
}

impl Bench {
    fn new() -> Self {
        Self::with(SessionLimits::default())
    }

    fn with(limits: SessionLimits) -> Self {
        Self { sessions: FetchSessions::new(limits), next_id: 0, now: 0 }
    }

    fn begin(&mut self, request: &FetchRequest) -> Result<(FetchContext, Vec<WantedPartition>), ErrorCode> {
        self.sessions.begin(request, NAMES, self.now)
    }

    /// Ends a Fetch, and says which partitions are told of.
    fn end(&mut self, context: FetchContext, mut answers: Vec<AnsweredPartition>) -> (ErrorCode, i32, Vec<i32>) {
        let next_id = &mut self.next_id;
        let new_id = || {
            *next_id += 1;
            *next_id
        };
        let (error, id) = self.sessions.end(context, &mut answers, self.now, new_id);
        (error, id, answers.iter().map(|answer| answer.wanted.asked.partition).collect())
    }

    /// Opens a session over `count` partitions of topic "t", each with high watermark 10 and nothing to read.
    fn open(&mut self, count: i32) -> i32 {
        let partitions: Vec<_> = (0..count).map(|partition| (partition, 0)).collect();
        let (context, wanted) = self.begin(&request((0, 0), &[("t", &partitions)])).expect("a full Fetch");
        let answers = wanted.iter().map(|w| ok(w, 10, 0)).collect();
        let (error, id, told) = self.end(context, answers);
        assert_eq!((error, told.len()), (ErrorCode::None, wanted.len()), "a full Fetch is answered in full");
        id
    }

    /// One incremental Fetch without changes, answered by `answer`; the partitions told of.
    fn poll(&mut self, session: (i32, i32), answer: impl Fn(&WantedPartition) -> AnsweredPartition) -> Vec<i32> {
        let (context, wanted) = self.begin(&request(session, &[])).expect("the session is there");
        let (error, id, told) = self.end(context, wanted.iter().map(answer).collect());
        assert_eq!((error, id), (ErrorCode::None, session.0));
        told
    }
}

#[test]
fn a_full_fetch_opens_a_session_and_a_final_one_does_not() {
    let mut bench = Bench::new();
    assert_eq!(bench.open(2), 1);
    let (context, wanted) = bench.begin(&request((0, -1), &[("t", &[(0, 5)])])).expect("without a session");
    assert_eq!((context, places(&wanted)), (FetchContext::Sessionless, vec![(0, 5)]));
    assert_eq!(bench.end(context, vec![ok(&wanted[0], 10, 0)]), (ErrorCode::None, NO_SESSION, vec![0]));
    assert_eq!(bench.sessions.len(), 1);
}

#[test]
fn a_full_fetch_closes_the_session_that_it_names() {
    for epoch in [0, -1] {
        let mut bench = Bench::new();
        let id = bench.open(1);
        bench.begin(&request((id, epoch), &[("t", &[(0, 0)])])).expect("a full Fetch");
        assert!(bench.sessions.is_empty(), "epoch {epoch}");
        assert_eq!(bench.begin(&request((id, 1), &[])), Err(ErrorCode::FetchSessionIdNotFound));
    }
}

#[test]
fn unknown_ids_wrong_epochs_and_mixed_namings_are_errors() {
    let mut bench = Bench::new();
    let id = bench.open(1);
    assert_eq!(bench.begin(&request((id + 1, 1), &[])), Err(ErrorCode::FetchSessionIdNotFound));
    assert_eq!(bench.begin(&request((id, 2), &[])), Err(ErrorCode::InvalidFetchSessionEpoch));
    assert_eq!(bench.sessions.begin(&request((id, 1), &[]), IDS, 0), Err(ErrorCode::FetchSessionTopicIdError));
    assert_eq!(bench.poll((id, 1), |w| ok(w, 10, 0)), [0i32; 0], "none of these has moved the epoch");
    assert_eq!(bench.begin(&request((id, 1), &[])), Err(ErrorCode::InvalidFetchSessionEpoch), "but this has");

    let with_ids = FetchRequest {
        topics: vec![FetchTopic { topic: TopicRef::Id(TopicId([1; 16])), partitions: vec![asked(0, 0)] }],
        ..request((0, 0), &[])
    };
    let (context, wanted) = bench.sessions.begin(&with_ids, IDS, 0).expect("a full Fetch");
    let (_, id, _) = bench.end(context, vec![ok(&wanted[0], 1, 0)]);
    assert_eq!(bench.begin(&request((id, 1), &[])), Err(ErrorCode::FetchSessionTopicIdError));
    assert!(bench.sessions.begin(&request((id, 1), &[]), IDS, 0).is_ok());
}

#[test]
fn an_incremental_fetch_is_told_what_is_new_and_nothing_else() {
    let mut bench = Bench::new();
    let id = bench.open(4);
    assert!(bench.poll((id, 1), |w| ok(w, 10, 0)).is_empty(), "nothing is new: an empty answer");
    assert_eq!(bench.poll((id, 2), |w| ok(w, 10 + i64::from(w.asked.partition == 1), 0)), [1], "a high watermark");
    let log_start = |w: &WantedPartition| {
        let mut answer = ok(w, 10 + i64::from(w.asked.partition == 1), 0);
        answer.response.log_start_offset = i64::from(w.asked.partition == 2);
        answer
    };
    assert_eq!(bench.poll((id, 3), log_start), [2], "a log start");
    assert!(bench.poll((id, 4), log_start).is_empty(), "told once");
    let data = |w: &WantedPartition| {
        let mut answer = log_start(w);
        answer.response.records = ok(w, 0, usize::from(w.asked.partition == 3)).response.records;
        answer
    };
    assert_eq!(bench.poll((id, 5), data), [3], "records");
    assert_eq!(bench.poll((id, 6), data), [3], "each time");
}

#[test]
fn an_error_is_told_each_time_and_so_is_its_end() {
    let mut bench = Bench::new();
    let id = bench.open(2);
    let bad = |w: &WantedPartition| if w.asked.partition == 1 { failed(w) } else { ok(w, 10, 0) };
    assert_eq!(bench.poll((id, 1), bad), [1]);
    assert_eq!(bench.poll((id, 2), bad), [1]);
    assert_eq!(bench.poll((id, 3), |w| ok(w, 10, 0)), [1], "well again");
    assert!(bench.poll((id, 4), |w| ok(w, 10, 0)).is_empty());
}

#[test]
fn partitions_are_added_changed_and_forgotten() {
    let mut bench = Bench::new();
    let id = bench.open(3);
    let forgotten = vec![ForgottenTopic { topic: topic("t"), partitions: vec![0, 7] }];
    let changes = FetchRequest { forgotten, ..request((id, 1), &[("t", &[(1, 44)]), ("u", &[(9, 5)])]) };
    let (context, wanted) = bench.begin(&changes).expect("the session is there");
    assert_eq!(places(&wanted), [(1, 44), (2, 0), (9, 5)]);
    assert_eq!(wanted[2].topic, topic("u"));
    let answers = wanted.iter().map(|w| ok(w, if w.asked.partition == 9 { -1 } else { 10 }, 0)).collect();
    let (_, _, told) = bench.end(context, answers);
    assert_eq!(told, [9], "a new partition is told of, since its log start is news");
}

#[test]
fn a_session_without_partitions_is_closed_and_the_request_answered_without_one() {
    let mut bench = Bench::new();
    let id = bench.open(1);
    let forgotten = vec![ForgottenTopic { topic: topic("t"), partitions: vec![0] }];
    let all_gone = FetchRequest { forgotten, ..request((id, 1), &[]) };
    assert_eq!(bench.begin(&all_gone), Ok((FetchContext::Sessionless, Vec::new())));
    assert_eq!((bench.sessions.len(), bench.sessions.bytes), (0, 0));
}

#[test]
fn partitions_that_returned_data_move_to_the_end() {
    let mut bench = Bench::new();
    let id = bench.open(4);
    let order = |bench: &mut Bench, epoch| {
        let (context, wanted) = bench.begin(&request((id, epoch), &[])).expect("the session is there");
        let has_data = |w: &WantedPartition| usize::from([0, 2].contains(&w.asked.partition));
        bench.end(context, wanted.iter().map(|w| ok(w, 10, has_data(w))).collect());
        wanted.iter().map(|w| w.asked.partition).collect::<Vec<_>>()
    };
    assert_eq!(order(&mut bench, 1), [0, 1, 2, 3]);
    assert_eq!(order(&mut bench, 2), [1, 3, 0, 2]);
    assert_eq!(order(&mut bench, 3), [1, 3, 0, 2]);
}

#[test]
fn epochs_begin_again_at_1_after_the_largest() {
    let mut bench = Bench::new();
    let id = bench.open(1);
    bench.sessions.slots.get_mut(&id).expect("open").epoch = i32::MAX;
    assert!(bench.poll((id, i32::MAX), |w| ok(w, 10, 0)).is_empty());
    assert!(bench.poll((id, 1), |w| ok(w, 10, 0)).is_empty());
}

#[test]
fn of_two_fetches_at_once_the_one_that_was_overtaken_fails() {
    let mut bench = Bench::new();
    let id = bench.open(1);
    let (first, wanted) = bench.begin(&request((id, 1), &[])).expect("the session is there");
    let (second, _) = bench.begin(&request((id, 2), &[])).expect("the session is there");
    let answers = vec![ok(&wanted[0], 11, 5)];
    assert_eq!(bench.end(first, answers.clone()), (ErrorCode::InvalidFetchSessionEpoch, id, Vec::new()));
    assert_eq!(bench.end(second, answers), (ErrorCode::None, id, vec![0]));
}

#[test]
fn a_partition_named_twice_is_one_partition() {
    let mut bench = Bench::new();
    let twice = request((0, 0), &[("t", &[(0, 1), (1, 1), (0, 2)]), ("t", &[(1, 3)])]);
    let (_, wanted) = bench.begin(&twice).expect("a full Fetch");
    assert_eq!(places(&wanted), [(0, 2), (1, 3)]);
}

#[test]
fn without_a_free_slot_the_longest_idle_or_the_smallest_that_had_its_time_makes_room() {
    let mut bench = Bench::with(SessionLimits { sessions: 2, ..SessionLimits::default() });
    let (small, large) = (bench.open(2), bench.open(5));
    bench.now = EVICTION_MS;
    assert_eq!(bench.open(9), NO_SESSION, "nobody is idle long enough yet");
    bench.poll((small, 1), |w| ok(w, 10, 0));
    bench.now += 1;
    bench.poll((small, 2), |w| ok(w, 10, 0));
    let new = bench.open(1);
    assert!(new != NO_SESSION && !bench.sessions.slots.contains_key(&large), "the idle one, whatever the sizes");
    assert_eq!(bench.open(2), NO_SESSION, "the small one has had its time, but is not smaller");
    let third = bench.open(3);
    assert!(third != NO_SESSION && !bench.sessions.slots.contains_key(&small));
    assert_eq!(bench.sessions.len(), 2);
}

#[test]
fn memory_is_bounded() {
    let one = {
        let mut bench = Bench::new();
        bench.open(100);
        bench.sessions.bytes
    };
    let mut bench = Bench::with(SessionLimits { bytes: one + one / 2, ..SessionLimits::default() });
    let id = bench.open(100);
    assert_eq!(bench.open(100), NO_SESSION, "no room, and nobody to close");
    assert_eq!(bench.open(1000), NO_SESSION, "more than there may be");
    let more: Vec<_> = (100..200).map(|partition| (partition, 0)).collect();
    assert_eq!(bench.begin(&request((id, 1), &[("t", &more)])), Err(ErrorCode::FetchSessionIdNotFound));
    assert_eq!((bench.sessions.len(), bench.sessions.bytes), (0, 0));
    // Naming what is there already takes no room.
    let id = bench.open(100);
    let same: Vec<_> = (0..100).map(|partition| (partition, 7)).collect();
    assert!(bench.begin(&request((id, 1), &[("t", &same)])).is_ok());
}

#[test]
fn a_session_does_not_keep_the_requests_that_named_its_partitions() {
    let mut bench = Bench::new();
    let name = StrBytes::from_string("t".to_owned());
    let mut full = request((0, 0), &[]);
    full.topics = vec![FetchTopic { topic: TopicRef::Name(name.clone()), partitions: vec![asked(0, 0), asked(1, 0)] }];
    let (context, wanted) = bench.begin(&full).expect("a full Fetch");
    let (_, id, _) = bench.end(context, wanted.iter().map(|w| ok(w, 10, 0)).collect());
    let (_, wanted) = bench.begin(&request((id, 1), &[])).expect("the session is there");
    for wanted in wanted {
        let TopicRef::Name(kept) = wanted.topic else { panic!("named by name") };
        assert!(kept == name && kept.as_str().as_ptr() != name.as_str().as_ptr());
    }
}
