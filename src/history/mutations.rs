//! The judge is judged: clean histories show nothing, and each way to spoil one shows exactly what it must.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::AnomalyClass::*;
use super::generate::clean;
use super::testing::{classes, judged};
use super::{AnomalyClass, Event, EventType, Function, Record};
use crate::types::Offset;

proptest! {
    #[test]
    fn a_clean_history_shows_nothing(seed in any::<u64>(), steps in 1..600usize) {
        let verdict = judged(&clean(seed, steps));
        prop_assert!(verdict.is_valid(), "{:#?}", verdict.anomalies);
    }
}

/// A history with its operations at hand.
struct Spoiled {
    events: Vec<Event>,
    chance: StdRng,
}

/// One operation: its key, and where its invocation and its completion are.
#[derive(Clone)]
struct Op {
    f: Function,
    key: String,
    process: String,
    op: u64,
    begin: usize,
    end: Option<usize>,
}

/// A record in a poll: the completion's place and the record's.
#[derive(Clone)]
struct Seen {
    poll: Op,
    end: usize,
    index: usize,
    count: usize,
    record: Record,
    is_final: bool,
}

impl Spoiled {
    fn ops(&self) -> Vec<Op> {
        let mut ops: Vec<Op> = Vec::new();
        let mut open = HashMap::new();
        for (at, event) in self.events.iter().enumerate() {
            let id = (event.process.as_str(), event.op);
            if event.event_type == EventType::Invoke || event.f == Function::Assign {
                let key = event.key.clone().unwrap_or_default();
                let end = (event.f == Function::Assign).then_some(at);
                open.insert(id, ops.len());
                ops.push(Op { f: event.f, key, process: event.process.clone(), op: event.op, begin: at, end });
            } else if let Some(begun) = open.get(&id) {
                ops[*begun].end = Some(at);
            }
        }
        ops
    }

    fn end<'a>(&'a self, op: &Op) -> Option<&'a Event> {
        op.end.map(|at| &self.events[at])
    }

    fn is(&self, op: &Op, event_type: EventType) -> bool {
        self.end(op).is_some_and(|event| event.event_type == event_type)
    }

    fn told(&self, op: &Op) -> Option<Offset> {
        self.end(op).filter(|event| event.event_type == EventType::Ok).and_then(|event| event.offset)
    }

    fn value(&self, op: &Op) -> u64 {
        self.events[op.begin].value.unwrap_or_default()
    }

    fn is_idempotent(&self, op: &Op) -> bool {
        self.events[op.begin].idempotent != Some(false)
    }

    fn seen(&self) -> Vec<Seen> {
        let mut seen = Vec::new();
        for poll in self.ops().into_iter().filter(|op| op.f == Function::Poll) {
            let Some(records) = self.end(&poll).and_then(|event| event.records.as_ref()) else { continue };
            let (end, count) = (poll.end.unwrap_or_default(), records.len());
            let is_final = self.events[poll.begin].is_final == Some(true);
            seen.extend(records.iter().enumerate().map(|(index, record)| {
                let poll = poll.clone();
                Seen { poll, end, index, count, record: *record, is_final }
            }));
        }
        seen
    }

    fn of<'a>(ops: &'a [Op], f: Function, key: &'a str) -> impl Iterator<Item = &'a Op> {
        ops.iter().filter(move |op| op.f == f && op.key == key)
    }

    fn pick<T>(&mut self, from: Vec<T>) -> Option<T> {
        let count = from.len();
        (count > 0).then(|| self.chance.random_range(0..count)).and_then(|at| from.into_iter().nth(at))
    }

    /// What the closing `start` or `end` of a partition was answered with.
    fn closing(&self, key: &str, f: Function) -> Offset {
        let asked = self
            .events
            .iter()
            .rfind(|event| (event.process.as_str(), event.f, event.key.as_deref()) == ("closer", f, Some(key)));
        let op = asked.expect("every history closes so").op;
        let told = self.events.iter().rfind(|event| event.process == "closer" && event.op == op);
        told.and_then(|event| event.offset).expect("it was answered")
    }

    /// The log start in the end.
    fn start(&self, key: &str) -> Offset {
        self.closing(key, Function::Start)
    }

    /// The last offset of the partition.
    fn last(&self, key: &str) -> Offset {
        self.closing(key, Function::End) - 1
    }

    /// The highest offset that was acknowledged or read before a place in the history.
    fn known(&self, key: &str, before: usize) -> Option<Offset> {
        let ops = self.ops();
        let acked =
            Self::of(&ops, Function::Send, key).filter(|op| op.end < Some(before)).filter_map(|op| self.told(op));
        let seen = self.seen().into_iter().filter(|s| s.poll.key == key && s.end < before).map(|s| s.record.offset);
        acked.chain(seen).max()
    }

    /// Takes records out of polls.
    fn remove(&mut self, which: impl Fn(&Seen) -> bool) {
        for seen in self.seen().iter().rev().filter(|seen| which(seen)) {
            if let Some(records) = &mut self.events[seen.end].records {
                records.remove(seen.index);
            }
        }
    }

    /// An operation right after another of the same process.
    fn insert_after(&mut self, op: &Op, f: Function, set: impl FnOnce(&mut Event, &mut Event)) {
        let at = op.end.expect("it has ended");
        let (time_ns, key) = (self.events[at].time_ns, Some(op.key.clone()));
        let new = |time_ns, event_type| Event {
            key: key.clone(),
            ..Event::new(time_ns, &op.process, op.op + 1, event_type, f)
        };
        let (mut begin, mut end) = (new(time_ns + 1, EventType::Invoke), new(time_ns + 2, EventType::Ok));
        set(&mut begin, &mut end);
        self.events.splice(at + 1..at + 1, [begin, end]);
    }
}

type Expected = Option<Vec<AnomalyClass>>;

/// An acknowledged and idempotent send that was read, with where it stands; not below the log start, not the last.
fn acked_within(s: &mut Spoiled) -> Option<(Op, Offset)> {
    let (ops, seen) = (s.ops(), s.seen());
    let found = ops.iter().filter(|op| op.f == Function::Send && s.is_idempotent(op)).filter_map(|op| {
        let stands = s.told(op).filter(|o| *o >= s.start(&op.key) && *o < s.last(&op.key))?;
        seen.iter().any(|seen| seen.poll.key == op.key && seen.record.offset == stands).then(|| (op.clone(), stands))
    });
    let found = found.collect();
    s.pick(found)
}

/// Nobody ever saw it.
fn lose_everywhere(s: &mut Spoiled) -> Expected {
    let (send, offset) = acked_within(s)?;
    let here = |seen: &Seen| seen.poll.key == send.key && seen.record.offset == offset;
    // At the edge of an ordinary poll it would be a skip too.
    if s.seen().iter().any(|x| here(x) && !x.is_final && (x.index == 0 || x.index + 1 == x.count)) {
        return None;
    }
    s.remove(here);
    Some(vec![LostWrite, Gap])
}

fn vanish(s: &mut Spoiled) -> Expected {
    let (send, offset) = acked_within(s)?;
    s.remove(|seen| seen.is_final && seen.poll.key == send.key && seen.record.offset == offset);
    Some(vec![LostWrite, Gap])
}

/// The last record of the partition vanishes.
fn vanish_at_the_end(s: &mut Spoiled) -> Expected {
    let key = s.pick(vec!["a-0", "b-0"])?;
    let last = s.last(key);
    let here = |seen: &Seen| seen.poll.key == key && seen.record.offset == last;
    let value = s.seen().iter().find(|seen| here(seen))?.record.value;
    // A producer that is not idempotent may have it twice.
    let elsewhere = s.seen().iter().any(|x| x.poll.key == key && x.record.value == value && !here(x));
    let is_read = s.seen().iter().any(|seen| here(seen) && !seen.is_final);
    let ops = s.ops();
    // Told no offset, it may have been the first that retention took.
    let is_told = |op: &Op| s.told(op).is_some() || (s.is(op, EventType::Ok) && s.start(key) == 0);
    let is_acked = Spoiled::of(&ops, Function::Send, key).any(|op| s.value(op) == value && is_told(op));
    s.remove(|seen| seen.is_final && here(seen));
    Some(if is_acked && !is_read && !elsewhere { vec![Gap, Unseen] } else { vec![Gap] })
}

/// One of the final readers misses a record.
fn hole(s: &mut Spoiled) -> Expected {
    let found = s.seen().into_iter().filter(|x| x.is_final && x.record.offset < s.last(&x.poll.key)).collect();
    let chosen = s.pick(found)?;
    s.remove(|seen| (seen.end, seen.index) == (chosen.end, chosen.index));
    Some(vec![Gap])
}

fn duplicate(s: &mut Spoiled) -> Expected {
    let (send, _) = acked_within(s)?;
    let (value, last) = (s.value(&send), s.last(&send.key));
    let end = s.seen().into_iter().find(|x| x.is_final && x.poll.key == send.key && x.record.offset == last)?.end;
    s.events[end].records.as_mut()?.push(Record::new(last + 1, value));
    Some(vec![Duplicate])
}

/// Two sends of one producer that were under way together land the other way round.
fn swap(s: &mut Spoiled) -> Expected {
    let (ops, seen) = (s.ops(), s.seen());
    let mut found = Vec::new();
    for key in ["a-0", "b-0"] {
        let sends: Vec<_> = Spoiled::of(&ops, Function::Send, key).filter(|op| s.is_idempotent(op)).collect();
        for (first, second) in sends.iter().flat_map(|a| sends.iter().map(move |b| (*a, *b))) {
            let (Some(one), Some(two)) = (s.told(first), s.told(second)) else { continue };
            let is_read_early =
                seen.iter().any(|x| x.poll.key == key && x.record.offset == one && x.end < second.begin);
            let is_the_end = Spoiled::of(&ops, Function::End, key).any(|op| s.told(op) == Some(two));
            if first.process == second.process
                && first.op < second.op
                && two == one + 1
                && Some(second.begin) < first.end
                && one >= s.start(key)
                && !is_read_early
                && !is_the_end
            {
                found.push((first.clone(), second.clone(), one));
            }
        }
    }
    let (first, second, one) = s.pick(found)?;
    for (op, offset) in [(&first, one + 1), (&second, one)] {
        s.events[op.end?].offset = Some(offset);
    }
    let (was, is) = (s.value(&first), s.value(&second));
    for x in seen.iter().filter(|x| x.poll.key == first.key && (one..=one + 1).contains(&x.record.offset)) {
        let record = &mut s.events[x.end].records.as_mut()?[x.index];
        record.value = if record.value == was { is } else { was };
        record.crc = None;
    }
    Some(vec![Reorder])
}

/// A send is acknowledged with the offset of another that was under way at the same time.
fn reassign(s: &mut Spoiled) -> Expected {
    let ops = s.ops();
    let mut found = Vec::new();
    for key in ["a-0", "b-0"] {
        let sends: Vec<_> = Spoiled::of(&ops, Function::Send, key).collect();
        for (op, other) in sends.iter().flat_map(|a| sends.iter().map(move |b| (*a, *b))) {
            let (Some(mine), Some(theirs)) = (s.told(op), s.told(other)) else { continue };
            let is_the_end = Spoiled::of(&ops, Function::End, key).any(|end| s.told(end) == Some(theirs));
            let is_concurrent = Some(other.begin) < op.end;
            if theirs == mine + 1 && is_concurrent && !is_the_end && mine >= s.start(key) {
                found.push((op.end?, theirs));
            }
        }
    }
    let (end, theirs) = s.pick(found)?;
    s.events[end].offset = Some(theirs);
    Some(vec![InconsistentOffset])
}

fn flip_crc(s: &mut Spoiled) -> Expected {
    let found = s.seen().into_iter().filter(|x| x.is_final && x.record.crc.is_some()).collect();
    let chosen: Seen = s.pick(found)?;
    let crc = &mut s.events[chosen.end].records.as_mut()?[chosen.index].crc;
    *crc = crc.map(|crc| crc ^ 1);
    Some(vec![InconsistentOffset])
}

/// An `end` is told as if the last acknowledgement were not there.
fn stale_tail(s: &mut Spoiled) -> Expected {
    let ops = s.ops();
    let found = ops.iter().filter(|op| op.f == Function::End).filter_map(|op| {
        let (end, stale) = (op.end?, s.known(&op.key, op.begin)?);
        let earlier = Spoiled::of(&ops, Function::End, &op.key).filter(|e| e.end < Some(op.begin));
        let earlier = earlier.filter_map(|e| s.told(e)).max();
        earlier.is_none_or(|earlier| earlier <= stale).then_some((end, stale))
    });
    let (end, stale) = s.pick(found.collect())?;
    s.events[end].offset = Some(stale);
    Some(vec![StaleTail])
}

/// An `end` or a `start` goes back by one.
fn goes_back(s: &mut Spoiled, f: Function) -> Expected {
    let ops = s.ops();
    let mut found = Vec::new();
    // The closing answers are what the rest is measured by.
    for op in ops.iter().filter(|op| op.f == f && op.process != "closer") {
        let Some(was) = s.told(op) else { continue };
        let earlier = Spoiled::of(&ops, f, &op.key).filter(|e| e.end.is_some() && e.end < Some(op.begin));
        let Some(highest) = earlier.filter_map(|e| s.told(e)).max().filter(|highest| *highest > 0) else { continue };
        let was_refused = Spoiled::of(&ops, Function::Poll, &op.key).any(|poll| {
            s.is(poll, EventType::Fail)
                && s.events[poll.begin].from.is_some_and(|from| (highest - 1..was).contains(&from))
        });
        if f == Function::End || !was_refused {
            found.push((op.clone(), highest - 1));
        }
    }
    let (op, told) = s.pick(found)?;
    let is_stale = f == Function::End && s.known(&op.key, op.begin) >= Some(told);
    s.events[op.end?].offset = Some(told);
    Some(if is_stale { vec![OffsetGoingBack, StaleTail] } else { vec![OffsetGoingBack] })
}

fn end_goes_back(s: &mut Spoiled) -> Expected {
    goes_back(s, Function::End)
}

fn start_goes_back(s: &mut Spoiled) -> Expected {
    goes_back(s, Function::Start)
}

/// A later send gets an offset from before an acknowledgement that it followed.
fn append_goes_back(s: &mut Spoiled) -> Expected {
    // The offset of a send whose producer was not told, so that nobody else was told it either.
    let ops = s.ops();
    let mut found = Vec::new();
    for late in ops.iter().filter(|op| op.f == Function::Send && s.told(op).is_some()) {
        let is_last = Some(s.last(&late.key)) == s.told(late);
        let before = Spoiled::of(&ops, Function::Send, &late.key).filter(|e| e.end < Some(late.begin));
        if let Some(highest) = before.filter_map(|e| s.told(e)).max().filter(|_| !is_last) {
            found.push((late.clone(), highest));
        }
    }
    let (late, highest) = s.pick(found)?;
    s.events[late.end?].offset = Some(highest);
    // The other one has that offset, too.
    Some(vec![OffsetGoingBack, InconsistentOffset])
}

fn failed_but_seen(s: &mut Spoiled) -> Expected {
    let seen = s.seen();
    let is_seen = |op: &Op| seen.iter().any(|x| x.poll.key == op.key && x.record.value == s.value(op));
    let found = s.ops().into_iter().filter(|op| op.f == Function::Send && op.end.is_some() && is_seen(op)).collect();
    let send: Op = s.pick(found)?;
    let end = &mut s.events[send.end?];
    (end.event_type, end.offset) = (EventType::Fail, None);
    Some(vec![AbortedRead])
}

fn sent_by_nobody(s: &mut Spoiled) -> Expected {
    let seen = s.seen();
    let is_seen = |op: &Op| seen.iter().any(|x| x.poll.key == op.key && x.record.value == s.value(op));
    let found = s.ops().into_iter().filter(|op| op.f == Function::Send && is_seen(op)).collect();
    let send: Op = s.pick(found)?;
    s.events.retain(|event| (&event.process, event.op) != (&send.process, send.op));
    Some(vec![Phantom])
}

fn ordinary_poll(s: &mut Spoiled, want: impl Fn(&Spoiled, &Op, &[Record]) -> bool) -> Option<(Op, Vec<Record>)> {
    let polls = s.ops().into_iter().filter(|op| op.f == Function::Poll && s.events[op.begin].is_final != Some(true));
    let found = polls.filter_map(|op| {
        let records = s.end(&op)?.records.clone().filter(|records| !records.is_empty())?;
        want(s, &op, &records).then_some((op, records))
    });
    let found = found.collect();
    s.pick(found)
}

fn repeat(s: &mut Spoiled) -> Expected {
    let (poll, records) = ordinary_poll(s, |_, _, _| true)?;
    let from = s.events[poll.begin].from;
    s.insert_after(&poll, Function::Poll, |begin, end| (begin.from, end.records) = (from, Some(records)));
    Some(vec![NonmonotonicPoll])
}

/// A poll between two others is as if it had not been.
fn skip(s: &mut Spoiled) -> Expected {
    let ops = s.ops();
    let (poll, _) = ordinary_poll(s, |s, poll, records| {
        let of_the_process = |op: &&Op| {
            op.process == poll.process && op.key == poll.key && [Function::Poll, Function::Assign].contains(&op.f)
        };
        let reads = |op: &Op| s.end(op).and_then(|e| e.records.as_ref()).is_some_and(|records| !records.is_empty());
        // What neither reads nor changes the position does not count.
        let counts = |op: &&Op| reads(op) || op.f == Function::Assign || op.end.is_none() || s.is(op, EventType::Info);
        let before = ops.iter().filter(of_the_process).filter(counts).rfind(|op| op.op < poll.op);
        let after = ops.iter().filter(of_the_process).filter(counts).find(|op| op.op > poll.op);
        let is_there = records.last().is_some_and(|record| record.offset >= s.start(&poll.key));
        before.is_some_and(reads) && after.is_some_and(reads) && is_there
    })?;
    s.events.retain(|event| (&event.process, event.op) != (&poll.process, poll.op));
    Some(vec![PollSkip])
}

fn false_out_of_range(s: &mut Spoiled) -> Expected {
    let (poll, records) =
        ordinary_poll(s, |s, poll, records| records.last().is_some_and(|last| last.offset >= s.start(&poll.key)))?;
    let beyond = s.chance.random_range(0..=1);
    let from = records.last().map(|last| last.offset + beyond);
    s.insert_after(&poll, Function::Poll, |begin, end| {
        begin.from = from;
        end.event_type = EventType::Fail;
        end.error = Some("OFFSET_OUT_OF_RANGE".to_owned());
    });
    Some(vec![FalseOutOfRange])
}

fn digest_flip(s: &mut Spoiled) -> Expected {
    let digests = s.events.iter().enumerate().filter(|(_, event)| event.f == Function::Digest).map(|(at, _)| at);
    let found = digests.collect();
    let at: usize = s.pick(found)?;
    s.events[at].digest = Some("0".to_owned());
    Some(vec![DigestMismatch])
}

type Mutation = (&'static str, fn(&mut Spoiled) -> Expected);

const MUTATIONS: [Mutation; 18] = [
    ("a record is nowhere", lose_everywhere),
    ("a record vanishes after its acknowledgement", vanish),
    ("the last record vanishes", vanish_at_the_end),
    ("a hole in one final read", hole),
    ("a record comes twice", duplicate),
    ("two records of a producer change places", swap),
    ("an acknowledgement tells another offset", reassign),
    ("a checksum changes", flip_crc),
    ("an end misses an acknowledgement", stale_tail),
    ("an end goes back", end_goes_back),
    ("a start goes back", start_goes_back),
    ("an acknowledged offset goes back", append_goes_back),
    ("a failed send is seen", failed_but_seen),
    ("a value comes from nowhere", sent_by_nobody),
    ("a poll repeats itself", repeat),
    ("a poll is left out", skip),
    ("an offset that exists is out of range", false_out_of_range),
    ("a digest differs", digest_flip),
];

#[test]
fn every_mutation_is_found_and_nothing_else() {
    const HISTORIES: u64 = 60;
    for (name, mutate) in MUTATIONS {
        let mut applied = 0;
        for seed in 0..HISTORIES {
            let mut spoiled = Spoiled { events: clean(seed, 300), chance: StdRng::seed_from_u64(seed) };
            let Some(expected) = mutate(&mut spoiled) else { continue };
            applied += 1;
            let verdict = judged(&spoiled.events);
            let texts: Vec<_> = verdict.anomalies.iter().map(ToString::to_string).collect();
            let expected: BTreeSet<_> = expected.into_iter().collect();
            assert_eq!(classes(&verdict), expected, "{name}, seed {seed}: {texts:#?}");
        }
        assert!(applied >= 10, "{name} could be tried on {applied} of {HISTORIES} histories");
    }
}
