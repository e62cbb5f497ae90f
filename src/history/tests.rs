//! Each class of anomalies: the smallest history that shows it, and near misses that do not.

use super::AnomalyClass::*;
use super::testing::{History, classes, judged};
use super::{AnomalyClass, Event, EventType, Function, Judge, Options, Record};

/// A history is anomalous in exactly these ways.
#[track_caller]
fn check(name: &str, expected: &[AnomalyClass], write: impl FnOnce(&mut History)) {
    let mut history = History::default();
    write(&mut history);
    let verdict = judged(&history.events);
    let texts: Vec<_> = verdict.anomalies.iter().map(ToString::to_string).collect();
    assert_eq!(classes(&verdict), expected.iter().copied().collect(), "{name}: {texts:#?}");
    for anomaly in &verdict.anomalies {
        assert!(!anomaly.ops.is_empty() && !anomaly.text.is_empty(), "{name}: {anomaly:?}");
    }
}

/// Values 10, 11, ... at offsets 0, 1, ..., all acknowledged.
fn three(h: &mut History) {
    for (offset, value) in [(0, 10), (1, 11), (2, 12)] {
        h.send("p", value, offset);
    }
}

const ALL: [(i64, u64); 3] = [(0, 10), (1, 11), (2, 12)];

#[test]
fn nothing_is_wrong_with_nothing() {
    check("no event", &[], |_| {});
    check("all is well", &[], |h| {
        h.start("c", 0);
        three(h);
        h.end("c", 3);
        h.poll("c", &ALL[..2]);
        h.poll("c", &[]);
        h.poll("c", &ALL[2..]);
        h.final_poll("f", &ALL);
        h.digest("a", 7, "aa");
        h.digest("b", 7, "aa");
    });
}

#[test]
fn lost_write() {
    check("a hole where it was", &[LostWrite, Gap], |h| {
        three(h);
        h.final_poll("f", &[(0, 10), (2, 12)]);
    });
    check("though it was read once", &[LostWrite, Gap], |h| {
        three(h);
        h.poll("c", &ALL);
        h.final_poll("f", &[(0, 10), (2, 12)]);
    });
    check("the first one", &[LostWrite, Gap], |h| {
        three(h);
        h.final_poll("f", &ALL[1..]);
    });
    check("its offset has another value", &[LostWrite, InconsistentOffset], |h| {
        three(h);
        h.send_that(EventType::Info, "q", 13);
        h.final_poll("f", &[(0, 10), (1, 13), (2, 12)]);
    });
    check("an end that was told too low", &[LostWrite, StaleTail, Gap], |h| {
        three(h);
        h.end("e", 2);
        h.final_poll("f", &ALL[..2]);
    });
    check("with no offset told", &[LostWrite], |h| {
        h.send("p", 10, 0);
        h.send("p", 11, None);
        h.end("e", 1);
        h.final_poll("f", &ALL[..1]);
    });
    check("near miss: two reads share the offsets", &[], |h| {
        three(h);
        h.poll_with("f", Some(0), true, &ALL[..1]);
        h.poll_with("g", Some(1), true, &ALL[1..]);
    });
    check("near miss: read before, and the final read begins behind it", &[], |h| {
        three(h);
        h.poll("c", &ALL);
        h.end("e", 3);
        h.poll_with("g", Some(1), true, &ALL[1..]);
    });
    check("near miss: retention took it", &[], |h| {
        three(h);
        h.start("s", 1);
        h.final_poll("f", &ALL[1..]);
    });
    check("near miss: not acknowledged", &[], |h| {
        h.send("p", 10, 0);
        h.send_that(EventType::Info, "p", 11);
        h.send_that(EventType::Fail, "p", 12);
        h.begin_send("p", 13);
        h.end("e", 1);
        h.final_poll("f", &ALL[..1]);
    });
}

#[test]
fn unseen() {
    check("nobody read", &[Unseen], three);
    check("a final read that did not get there", &[Unseen, Gap], |h| {
        three(h);
        h.final_poll("f", &ALL[..2]);
    });
    check("an end from before the acknowledgement proves nothing", &[Unseen, Gap], |h| {
        h.send("p", 10, 0);
        h.end("e", 1);
        h.send("p", 11, 1);
        h.final_poll("f", &ALL[..1]);
    });
    check("with no offset told", &[Unseen], |h| h.send("p", 10, None));
    check("near miss: an ordinary poll read it", &[], |h| {
        three(h);
        h.poll("c", &ALL);
    });
}

#[test]
fn duplicate() {
    check("one value twice", &[Duplicate], |h| {
        h.send("p", 10, 0);
        h.poll("c", &[(0, 10), (1, 10)]);
    });
    check("whose outcome is not known", &[Duplicate], |h| {
        h.send_that(EventType::Info, "p", 10);
        h.poll("c", &[(0, 10)]);
        h.poll("d", &[(1, 10)]);
    });
    check("near miss: not idempotent", &[], |h| {
        h.plain_send("p", 10, 0);
        h.poll("c", &[(0, 10), (1, 10)]);
    });
    check("near miss: one offset, read twice", &[], |h| {
        h.send("p", 10, 0);
        h.poll("c", &[(0, 10)]);
        h.poll("d", &[(0, 10)]);
    });
}

#[test]
fn aborted_read() {
    check("failed, but there", &[AbortedRead], |h| {
        h.send_that(EventType::Fail, "p", 10);
        h.poll("c", &[(0, 10)]);
    });
    check("near miss: perhaps failed", &[], |h| {
        h.send_that(EventType::Info, "p", 10);
        h.poll("c", &[(0, 10)]);
    });
}

#[test]
fn reorder() {
    let both = |h: &mut History, process: &str| {
        let (first, second) = (h.begin_send("p", 10), h.begin_send(process, 11));
        (first, second)
    };
    check("by acknowledgements", &[Reorder, Unseen], |h| {
        let (first, second) = both(h, "p");
        h.ack("p", first, 1);
        h.ack("p", second, 0);
    });
    check("by what was read", &[Reorder], |h| {
        both(h, "p");
        h.poll("c", &[(0, 11), (1, 10)]);
    });
    check("by one and the other", &[Reorder], |h| {
        let (first, _) = both(h, "p");
        h.ack("p", first, 1);
        h.poll("c", &[(0, 11), (1, 10)]);
    });
    check("near miss: two producers", &[], |h| {
        both(h, "q");
        h.poll("c", &[(0, 11), (1, 10)]);
    });
    check("near miss: not idempotent", &[], |h| {
        let first = h.begin_send("p", 10);
        h.plain_send("p", 11, 0);
        h.ack("p", first, 1);
        h.poll("c", &[(0, 11), (1, 10)]);
    });
}

#[test]
fn gap() {
    let unknown = |h: &mut History| {
        for value in [10, 11, 12] {
            h.send_that(EventType::Info, "p", value);
        }
    };
    check("within a final poll", &[Gap], |h| {
        unknown(h);
        h.final_poll("f", &[(0, 10), (2, 12)]);
    });
    check("between final polls", &[Gap], |h| {
        unknown(h);
        h.final_poll("f", &ALL[..1]);
        h.final_poll("f", &ALL[2..]);
    });
    check("before the first record", &[Gap], |h| {
        unknown(h);
        h.start("s", 0);
        h.final_poll("f", &ALL[2..]);
    });
    check("at the end, of what was read before", &[Gap], |h| {
        three(h);
        h.poll("c", &ALL);
        h.final_poll("f", &ALL[..2]);
    });
    check("at the end that was told", &[Gap], |h| {
        unknown(h);
        h.end("e", 3);
        h.final_poll("f", &ALL[..2]);
    });
    check("near miss: a reader that was replaced", &[], |h| {
        unknown(h);
        h.end("e", 3);
        h.final_poll("f", &ALL[..2]);
        h.final_poll("g", &ALL);
    });
    check("within any answer", &[Gap], |h| {
        unknown(h);
        h.poll("c", &[(0, 10), (2, 12)]);
    });
    check("near miss: below the log start", &[], |h| {
        unknown(h);
        h.poll("c", &ALL);
        h.start("s", 2);
        h.final_poll("f", &ALL[2..]);
    });
    check("near miss: nothing is known of offsets below", &[], |h| {
        unknown(h);
        h.final_poll("f", &[(7, 10), (8, 11)]);
    });
    check("near miss: between ordinary polls, nothing known there", &[], |h| {
        unknown(h);
        h.poll("c", &ALL[..1]);
        h.poll("c", &ALL[2..]);
    });
}

#[test]
fn inconsistent_offset() {
    check("read with two values", &[InconsistentOffset], |h| {
        h.send_that(EventType::Info, "p", 10);
        h.send_that(EventType::Info, "p", 11);
        h.poll("c", &[(0, 10)]);
        h.poll("d", &[(0, 11)]);
    });
    check("acknowledged twice", &[InconsistentOffset, Unseen], |h| {
        let (first, second) = (h.begin_send("p", 10), h.begin_send("q", 11));
        h.ack("p", first, 0);
        h.ack("q", second, 0);
    });
    check("acknowledged and read", &[InconsistentOffset], |h| {
        let (first, second) = (h.begin_send("p", 10), h.begin_send("q", 11));
        h.ack("p", first, 1);
        h.ack("q", second, 0);
        h.poll("c", &[(0, 10), (1, 11)]);
    });
    check("acknowledged here and read there", &[InconsistentOffset], |h| {
        h.send("p", 10, 5);
        h.poll("c", &[(0, 10)]);
    });
    check("near miss: not idempotent, so perhaps at both", &[], |h| {
        h.plain_send("p", 10, 5);
        h.poll("c", &[(4, 10)]);
    });
    check("two checksums", &[InconsistentOffset], |h| {
        h.send("p", 10, 0);
        h.poll_crc("c", (0, 10), 1);
        h.poll_crc("d", (0, 10), 2);
    });
    check("near miss: a checksum and none", &[], |h| {
        h.send("p", 10, 0);
        h.poll("b", &[(0, 10)]);
        h.poll_crc("c", (0, 10), 1);
        h.poll_crc("d", (0, 10), 1);
        h.poll("e", &[(0, 10)]);
    });
    check("near miss: librdkafka's offset for none", &[], |h| {
        h.send("p", 10, -1001);
        h.poll("c", &[(0, 10)]);
    });
}

#[test]
fn phantom() {
    check("sent by nobody", &[Phantom], |h| h.poll("c", &[(0, 10)]));
    check("read before it was sent", &[Phantom], |h| {
        h.poll("c", &[(0, 10)]);
        h.send("p", 10, 0);
    });
    check("though a poll that began earlier ended later", &[Phantom], |h| {
        let poll = h.invoke("c", Function::Poll, |_| {});
        h.poll("d", &[(0, 10)]);
        h.send("p", 10, 0);
        h.ok("c", poll, Function::Poll, |event| event.records = Some(vec![Record::new(0, 10)]));
    });
    check("near miss: read before it was acknowledged", &[], |h| {
        let op = h.begin_send("p", 10);
        h.poll("c", &[(0, 10)]);
        h.ack("p", op, 0);
    });
}

#[test]
fn offset_going_back() {
    check("of sends, one after the other", &[OffsetGoingBack], |h| {
        h.send("p", 10, 1);
        h.send("q", 11, 0);
        h.poll("c", &[(0, 11), (1, 10)]);
    });
    check("of ends", &[OffsetGoingBack], |h| {
        h.end("c", 2);
        h.end("d", 1);
    });
    check("of starts", &[OffsetGoingBack], |h| {
        h.start("c", 2);
        h.start("d", 1);
    });
    check("near miss: at the same time", &[], |h| {
        let first = h.begin_send("q", 11);
        h.send("p", 10, 1);
        h.ack("q", first, 0);
        let end = h.invoke("c", Function::End, |_| {});
        h.end("d", 3);
        h.ok("c", end, Function::End, |event| event.offset = Some(2));
        h.poll("c", &[(0, 11), (1, 10)]);
    });
    check("near miss: the same again", &[], |h| {
        h.end("c", 2);
        h.end("d", 2);
        h.start("c", 2);
        h.start("d", 2);
    });
}

#[test]
fn nonmonotonic_poll() {
    check("back", &[NonmonotonicPoll], |h| {
        three(h);
        h.poll("c", &ALL);
        h.poll("c", &ALL[1..]);
    });
    check("the last one again", &[NonmonotonicPoll], |h| {
        three(h);
        h.poll("c", &ALL);
        h.poll("c", &ALL[2..]);
    });
    check("within an answer", &[NonmonotonicPoll], |h| {
        three(h);
        h.poll("c", &[(0, 10), (1, 11), (1, 11), (2, 12)]);
    });
    check("before what it asked for", &[NonmonotonicPoll], |h| {
        three(h);
        h.poll_from("c", 1, &ALL);
    });
    check("near miss: put there on purpose", &[], |h| {
        three(h);
        h.poll("c", &ALL);
        h.assign("c", 1);
        h.poll("c", &ALL[1..]);
    });
    check("near miss: another process", &[], |h| {
        three(h);
        h.poll("c", &ALL);
        h.poll("d", &ALL);
    });
    check("near miss: a poll between whose end is not known", &[], |h| {
        three(h);
        h.poll("c", &ALL);
        h.poll_that(EventType::Info, "c", 3, "REQUEST_TIMED_OUT");
        h.poll("c", &ALL);
    });
}

#[test]
fn poll_skip() {
    check("over an acknowledged value", &[PollSkip], |h| {
        three(h);
        h.poll("c", &ALL[..1]);
        h.poll("c", &ALL[2..]);
        h.poll("d", &ALL);
    });
    check("over a value that another read", &[PollSkip], |h| {
        for value in [10, 11, 12] {
            h.send_that(EventType::Info, "p", value);
        }
        h.poll("c", &ALL[..1]);
        h.poll("c", &ALL[2..]);
        h.poll("d", &ALL[..2]);
    });
    check("behind what it asked for", &[PollSkip], |h| {
        three(h);
        h.poll_from("c", 1, &ALL[2..]);
        h.poll("d", &ALL);
    });
    check("a failed poll between excuses nothing", &[PollSkip], |h| {
        three(h);
        h.poll("c", &ALL[..1]);
        h.poll_that(EventType::Fail, "c", 1, "NOT_LEADER_OR_FOLLOWER");
        h.poll("c", &ALL[2..]);
        h.poll("d", &ALL);
    });
    check("near miss: put there on purpose", &[], |h| {
        three(h);
        h.poll("c", &ALL[..1]);
        h.assign("c", None);
        h.poll("c", &ALL[2..]);
        h.poll("d", &ALL);
    });
    check("near miss: the log start passed it", &[], |h| {
        three(h);
        h.poll("d", &ALL);
        h.poll("c", &ALL[..1]);
        h.start("s", 2);
        h.poll("c", &ALL[2..]);
    });
    check("the log start passed it only later", &[PollSkip], |h| {
        three(h);
        h.poll("d", &ALL);
        h.poll("c", &ALL[..1]);
        h.poll("c", &ALL[2..]);
        h.start("s", 0);
        h.start("s", 2);
    });
}

#[test]
fn poll_skip_below_a_log_start_that_two_were_told() {
    check("the lower one was asked for later", &[PollSkip], |h| {
        three(h);
        h.poll("d", &ALL);
        h.poll("c", &ALL[..1]);
        h.poll("c", &ALL[2..]);
        let start = h.invoke("r", Function::Start, |_| {});
        h.start("s", 0);
        h.ok("r", start, Function::Start, |event| event.offset = Some(2));
    });
}

#[test]
fn stale_tail() {
    check("below an acknowledgement", &[StaleTail], |h| {
        three(h);
        h.end("e", 2);
        h.poll("c", &ALL);
    });
    check("below what was read", &[StaleTail], |h| {
        h.send_that(EventType::Info, "p", 10);
        h.poll("c", &ALL[..1]);
        h.end("e", 0);
    });
    check("near miss: asked before the acknowledgement", &[], |h| {
        let op = h.begin_send("p", 10);
        let end = h.invoke("e", Function::End, |_| {});
        h.ack("p", op, 0);
        h.ok("e", end, Function::End, |event| event.offset = Some(0));
        h.poll("c", &ALL[..1]);
    });
    check("near miss: an empty poll behind the last offset, and before it", &[], |h| {
        three(h);
        h.poll_from("c", 0, &[]);
        h.poll("c", &ALL);
        h.poll_from("c", 3, &[]);
    });
}

#[test]
fn false_out_of_range() {
    check("an acknowledged offset", &[FalseOutOfRange], |h| {
        three(h);
        h.poll("c", &ALL);
        h.out_of_range("c", 2);
    });
    check("the end", &[FalseOutOfRange], |h| {
        three(h);
        h.poll("c", &ALL);
        h.out_of_range("c", 3);
    });
    check("the start of an empty log", &[FalseOutOfRange], |h| {
        h.start("s", 0);
        h.end("s", 0);
        h.out_of_range("c", 0);
    });
    check("the log start, told later", &[FalseOutOfRange], |h| {
        three(h);
        h.poll("c", &ALL);
        h.out_of_range("c", 1);
        h.start("s", 1);
    });
    check("though the log start moved past it in the end", &[FalseOutOfRange], |h| {
        three(h);
        h.poll("c", &ALL);
        h.out_of_range("c", 1);
        h.start("s", 0);
        h.start("s", 3);
    });
    check("near miss: the log start may have moved past it meanwhile", &[], |h| {
        three(h);
        h.poll("d", &ALL);
        let poll = h.invoke("c", Function::Poll, |event| event.from = Some(1));
        h.start("s", 0);
        h.fail("c", poll, Function::Poll, "OFFSET_OUT_OF_RANGE");
        h.start("s", 2);
    });
    check("near miss: behind the end", &[], |h| {
        three(h);
        h.poll("c", &ALL);
        h.out_of_range("c", 4);
    });
    check("near miss: below the log start", &[], |h| {
        three(h);
        h.poll("c", &ALL);
        h.start("s", 2);
        h.out_of_range("c", 1);
        h.start("s", 3);
    });
    check("near miss: asked before the acknowledgement", &[], |h| {
        h.start("s", 0);
        let send = h.begin_send("p", 10);
        let poll = h.invoke("c", Function::Poll, |event| event.from = Some(1));
        h.ack("p", send, 0);
        h.poll("d", &ALL[..1]);
        h.end("e", 1);
        h.fail("c", poll, Function::Poll, "OFFSET_OUT_OF_RANGE");
    });
    check("near miss: another error, or not known to be one", &[], |h| {
        three(h);
        h.poll("c", &ALL);
        h.poll_that(EventType::Info, "c", 2, "OFFSET_OUT_OF_RANGE");
        h.poll_that(EventType::Fail, "c", 2, "OFFSET_NOT_AVAILABLE");
    });
}

#[test]
fn digest_mismatch() {
    check("two proxies", &[DigestMismatch], |h| {
        h.digest("a", 7, "aa");
        h.digest("b", 7, "bb");
    });
    check("one proxy, twice", &[DigestMismatch], |h| {
        h.digest("a", 7, "aa");
        h.digest("a", 7, "bb");
    });
    check("near miss: other positions", &[], |h| {
        h.digest("a", 7, "aa");
        h.digest("b", 8, "bb");
    });
}

#[test]
fn what_is_told_names_offsets_values_processes_times_and_faults() {
    let mut h = History::default();
    h.note("zone a: proxy killed");
    h.send("p", 10, 1);
    h.note("zone a: proxy started");
    h.send("q", 11, 0);
    h.note("zone b: proxy killed");
    h.note("zone b: proxy started");
    h.poll("c", &[(0, 11), (1, 10)]);
    let verdict = judged(&h.events);
    let [anomaly] = &verdict.anomalies[..] else { panic!("{:?}", verdict.anomalies) };
    assert_eq!(
        anomaly.text,
        "q (op 1) sent at 0.004000 s and was acknowledged offset 0, though p (op 1) had been acknowledged offset 1 at \
         0.002000 s"
    );
    let ops: Vec<_> = anomaly.ops.iter().map(|id| (id.process.as_str(), id.op)).collect();
    assert_eq!((anomaly.key.as_str(), anomaly.time_ns, ops), ("t-0", 6_000_000, vec![("p", 1), ("q", 1)]));
    assert_eq!(
        anomaly.notes,
        ["0.000000 s zone a: proxy killed", "0.003000 s zone a: proxy started", "0.006000 s zone b: proxy killed"]
    );
}

#[test]
fn all_are_counted_and_few_are_told() {
    let mut h = History::default();
    for offset in 0..30 {
        h.poll("c", &[(offset, offset.unsigned_abs())]);
    }
    let mut judge = Judge::new(Options { examples: 3 });
    for event in &h.events {
        judge.take(event).expect("good");
    }
    let verdict = judge.verdict().expect("good");
    assert_eq!((verdict.counts[&Phantom], verdict.anomalies.len()), (30, 3));
    assert!(verdict.anomalies[0].text.contains("offset 0 "), "{:?}", verdict.anomalies);
}

#[test]
fn the_order_of_lines_means_nothing_where_times_differ() {
    let mut h = History::default();
    three(&mut h);
    h.poll("c", &ALL[..1]);
    h.poll("c", &ALL[2..]);
    h.final_poll("f", &ALL);
    let mut reversed = h.events.clone();
    reversed.reverse();
    assert_eq!(classes(&judged(&reversed)), classes(&judged(&h.events)));
    // At one time, lines are in order.
    for event in &mut h.events {
        event.time_ns = 1;
    }
    assert_eq!(classes(&judged(&h.events)), [PollSkip].into());
}

#[test]
fn figures() {
    let mut h = History::default();
    three(&mut h);
    h.send_that(EventType::Info, "p", 13);
    h.send_that(EventType::Fail, "q", 14);
    h.begin_send("q", 15);
    h.poll("c", &ALL);
    h.out_of_range("c", 9);
    h.end("c", 3);
    let verdict = judged(&h.events);
    let s = &verdict.statistics;
    assert_eq!((s.sends.ok, s.sends.fail, s.sends.info, s.sends.open), (3, 1, 1, 1));
    assert_eq!((s.polls.ok, s.polls.fail, s.offsets_asked.ok, s.records), (1, 1, 1, 3));
    assert_eq!((s.keys, s.processes, s.duration_ns), (1, 3, 16_000_000));
    // From the last acknowledgement, the sixth line, to the last send, the eleventh.
    let [waited] = &s.without_ack[..] else { panic!("{:?}", s.without_ack) };
    assert_eq!((waited.longest_ns, waited.since_ns), (5_000_000, 5_000_000));
    let errors: Vec<_> = s.errors.iter().map(|e| (e.f, e.error.as_str(), e.count)).collect();
    assert_eq!(errors, [("send", "REQUEST_TIMED_OUT", 2), ("poll", "OFFSET_OUT_OF_RANGE", 1)]);
}

/// A history that cannot be judged, the event that is at fault, and a part of what is said.
#[track_caller]
fn broken(lines: &[&str], event: usize, what: &str) {
    let mut judge = Judge::default();
    let taken: Result<(), _> =
        lines.iter().try_for_each(|line| judge.take(&Event::read(line).expect("a line that can be read")));
    let error = taken.and_then(|()| judge.verdict().map(|_| ())).expect_err(what);
    assert!(error.event == event && error.what.contains(what), "{error:?} instead of {event}: {what}");
}

#[test]
fn broken_histories_are_refused_with_the_event_at_fault() {
    let send = r#"{"time_ns":1,"process":"p","op":1,"type":"invoke","f":"send","key":"k","value":1}"#;
    let acked = r#"{"time_ns":2,"process":"p","op":1,"type":"ok","f":"send","offset":1}"#;
    broken(&[send, acked, acked], 2, "completes twice");
    broken(&[acked], 0, "nothing invokes it");
    broken(&[send, send], 1, "was invoked before");
    broken(&[send, acked, send], 2, "was invoked before");
    broken(&[send, &acked.replace("\"time_ns\":2", "\"time_ns\":0")], 1, "before it is invoked");
    broken(&[send, &acked.replace("send", "end")], 1, "as something else");
    broken(&[send, &acked.replace("\"offset\"", "\"key\":\"l\",\"offset\"")], 1, "another key");
    broken(&[send, acked, &send.replace("\"op\":1", "\"op\":2")], 2, "values must be unique");
    broken(&[&send.replace("\"key\":\"k\",", "")], 0, "needs its key");
    broken(&[&send.replace(",\"value\":1", "")], 0, "needs its value");
    broken(&[&acked.replace("send", "poll")], 0, "needs its records");
    broken(&[&acked.replace("send", "start").replace(",\"offset\":1", "")], 0, "needs its offset");
    broken(&[&acked.replace("send", "assign")], 0, "needs its key");
    broken(&[&acked.replace("send", "digest")], 0, "needs its position");
}
