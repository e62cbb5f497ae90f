//! Clean histories for tests: producers, consumers and checkers over a model of two partitions that does nothing wrong,
//! though operations overlap, fail, stay unknown, and records are deleted by retention.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::{Event, EventType, Function, Record};
use crate::types::Offset;

const KEYS: [&str; 2] = ["a-0", "b-0"];
const PRODUCERS: [&str; 3] = ["p0", "p1", "p2"];
const CONSUMERS: [&str; 3] = ["c0", "c1", "c2"];

/// A partition as it really is.
#[derive(Default)]
struct Partition {
    values: Vec<u64>,
    start: usize,
}

impl Partition {
    fn end(&self) -> usize {
        self.values.len()
    }

    fn append(&mut self, value: u64) -> usize {
        self.values.push(value);
        self.values.len() - 1
    }
}

/// A send whose end its producer awaits, or that is on its way though the producer gave up.
struct Pending {
    op: u64,
    value: u64,
    appended: Option<usize>,
    is_answered: bool,
}

#[derive(Default)]
struct Consumer {
    position: [usize; 2],
    /// The operation that it waits for.
    waits: Option<(u64, usize, Function)>,
}

struct World {
    chance: StdRng,
    events: Vec<Event>,
    time_ns: u64,
    ops: BTreeMap<&'static str, u64>,
    partitions: [Partition; 2],
    pending: BTreeMap<(usize, usize), Vec<Pending>>,
    consumers: [Consumer; 3],
    next_value: u64,
}

/// A history of about so many steps.
pub(super) fn clean(seed: u64, steps: usize) -> Vec<Event> {
    let mut world = World {
        chance: StdRng::seed_from_u64(seed),
        events: Vec::new(),
        time_ns: 1000,
        ops: BTreeMap::new(),
        partitions: Default::default(),
        pending: BTreeMap::new(),
        consumers: Default::default(),
        next_value: 1,
    };
    for _ in 0..steps {
        world.step();
    }
    world.settle();
    for key in 0..KEYS.len() {
        world.final_reads(key);
    }
    world.events
}

/// What a record's bytes would give.
fn crc(value: u64) -> u32 {
    (value as u32).wrapping_mul(0x9E37_79B9)
}

fn offset(of: usize) -> Offset {
    Offset::try_from(of).expect("small")
}

impl World {
    fn is(&mut self, percent: u32) -> bool {
        self.chance.random_range(0..100) < percent
    }

    fn below(&mut self, bound: usize) -> usize {
        self.chance.random_range(0..bound)
    }

    /// Operations of a process are ten apart, and lines ten nanoseconds at least, so that there is room between.
    fn op(&mut self, process: &'static str) -> u64 {
        let op = self.ops.entry(process).or_default();
        *op += 10;
        *op
    }

    fn push(&mut self, process: &str, op: u64, event_type: EventType, f: Function, set: impl FnOnce(&mut Event)) {
        self.time_ns += self.chance.random_range(10..1000);
        let mut event = Event::new(self.time_ns, process, op, event_type, f);
        set(&mut event);
        self.events.push(event);
    }

    fn step(&mut self) {
        match self.below(100) {
            0..25 => self.begin_send(),
            25..45 => self.append(),
            45..65 => self.answer_send(),
            65..97 => self.consume(),
            97 => self.retention(),
            98 => self.digest(),
            _ => {
                self.push("nemesis", 0, EventType::Ok, Function::Note, |event| event.error = Some("a fault".to_owned()))
            }
        }
    }

    fn begin_send(&mut self) {
        let (producer, key) = (self.below(PRODUCERS.len()), self.below(KEYS.len()));
        let op = self.op(PRODUCERS[producer]);
        let value = self.next_value;
        self.next_value += 1;
        self.push(PRODUCERS[producer], op, EventType::Invoke, Function::Send, |event| {
            event.key = Some(KEYS[key].to_owned());
            event.value = Some(value);
            // The last producer is not idempotent: its records may come twice.
            event.idempotent = (producer == 2).then_some(false);
        });
        let pending = Pending { op, value, appended: None, is_answered: false };
        self.pending.entry((producer, key)).or_default().push(pending);
    }

    fn pick(&mut self) -> Option<(usize, usize)> {
        let lanes: Vec<_> = self.pending.iter().filter(|(_, sends)| !sends.is_empty()).map(|(lane, _)| *lane).collect();
        (!lanes.is_empty()).then(|| lanes[self.below(lanes.len())])
    }

    /// The partition takes a producer's oldest send.
    fn append(&mut self) {
        let Some((producer, key)) = self.pick() else { return };
        let comes_twice = producer == 2 && self.is(30);
        let sends = self.pending.get_mut(&(producer, key)).expect("picked");
        let Some(send) = sends.iter_mut().find(|send| send.appended.is_none()) else { return };
        let partition = &mut self.partitions[key];
        send.appended = Some(partition.append(send.value));
        if comes_twice {
            partition.append(send.value);
        }
        sends.retain(|send| !send.is_answered || send.appended.is_none());
    }

    /// A producer learns what became of a send, or gives up waiting.
    fn answer_send(&mut self) {
        let Some((producer, key)) = self.pick() else { return };
        let (fails, is_unknown, tells_no_offset) = (self.is(5), self.is(8), self.is(10));
        let sends = self.pending.get_mut(&(producer, key)).expect("picked");
        let Some(at) = sends.iter().position(|send| !send.is_answered) else { return };
        let Pending { op, appended, .. } = sends[at];
        let (event_type, error) = match appended {
            Some(_) if !is_unknown => (EventType::Ok, None),
            None if fails => (EventType::Fail, Some("NOT_ENOUGH_REPLICAS")),
            None if !is_unknown => return,
            _ => (EventType::Info, Some("REQUEST_TIMED_OUT")),
        };
        sends[at].is_answered = true;
        if event_type == EventType::Fail || appended.is_some() {
            sends.remove(at);
        }
        self.push(PRODUCERS[producer], op, event_type, Function::Send, |event| {
            event.offset = appended.filter(|_| event_type == EventType::Ok && !tells_no_offset).map(offset);
            event.error = error.map(str::to_owned);
        });
    }

    fn consume(&mut self) {
        let consumer = self.below(CONSUMERS.len());
        match self.consumers[consumer].waits.take() {
            Some((op, key, Function::Poll)) => self.answer_poll(consumer, op, key),
            Some((op, key, f)) => {
                let partition = &self.partitions[key];
                let told = if f == Function::End { partition.end() } else { partition.start };
                self.push(CONSUMERS[consumer], op, EventType::Ok, f, |event| event.offset = Some(offset(told)));
            }
            None => self.ask(consumer),
        }
    }

    fn ask(&mut self, consumer: usize) {
        let (name, key, op) = (CONSUMERS[consumer], self.below(KEYS.len()), self.op(CONSUMERS[consumer]));
        let f = match self.below(100) {
            0..70 => Function::Poll,
            70..85 => Function::End,
            85..90 => Function::Start,
            _ => {
                let partition = &self.partitions[key];
                let to = self.chance.random_range(partition.start..=partition.end());
                return self.assign(consumer, op, key, to);
            }
        };
        let from = self.consumers[consumer].position[key];
        self.push(name, op, EventType::Invoke, f, |event| {
            event.key = Some(KEYS[key].to_owned());
            // Only one of the consumers knows where it is.
            event.from = (consumer == 0 && f == Function::Poll).then(|| offset(from));
        });
        self.consumers[consumer].waits = Some((op, key, f));
    }

    fn assign(&mut self, consumer: usize, op: u64, key: usize, to: usize) {
        self.consumers[consumer].position[key] = to;
        self.push(CONSUMERS[consumer], op, EventType::Ok, Function::Assign, |event| {
            event.key = Some(KEYS[key].to_owned());
            event.offset = (consumer != 1).then(|| offset(to));
        });
    }

    fn answer_poll(&mut self, consumer: usize, op: u64, key: usize) {
        let (name, from) = (CONSUMERS[consumer], self.consumers[consumer].position[key]);
        let start = self.partitions[key].start;
        if from < start {
            self.push(name, op, EventType::Fail, Function::Poll, |event| {
                event.error = Some("OFFSET_OUT_OF_RANGE".to_owned());
            });
            let op = self.op(name);
            return self.assign(consumer, op, key, start);
        }
        if self.is(8) {
            let event_type = if self.is(50) { EventType::Fail } else { EventType::Info };
            return self.push(name, op, event_type, Function::Poll, |event| {
                event.error = Some("NOT_LEADER_OR_FOLLOWER".to_owned());
            });
        }
        let count = self.below(8);
        let records = self.records(key, from, count, consumer != 2);
        self.consumers[consumer].position[key] += records.len();
        self.push(name, op, EventType::Ok, Function::Poll, |event| event.records = Some(records));
    }

    fn records(&self, key: usize, from: usize, count: usize, with_crc: bool) -> Vec<Record> {
        let values = self.partitions[key].values.iter().enumerate().skip(from).take(count);
        let record = |(at, value): (usize, &u64)| Record {
            crc: with_crc.then(|| crc(*value)),
            ..Record::new(offset(at), *value)
        };
        values.map(record).collect()
    }

    fn retention(&mut self) {
        let key = self.below(KEYS.len());
        let partition = &self.partitions[key];
        let most = (partition.end() - partition.start) / 4;
        let by = self.below(most + 1);
        self.partitions[key].start += by;
    }

    fn digest(&mut self) {
        let applied: usize = self.partitions.iter().map(Partition::end).sum();
        for proxy in ["x", "y"] {
            let position = Some(i64::try_from(applied).expect("small"));
            self.push(proxy, 0, EventType::Ok, Function::Digest, |event| {
                event.position = position;
                event.digest = Some(format!("{applied:016x}"));
                event.proxy = Some(proxy.to_owned());
            });
        }
    }

    /// What is on its way arrives, or never will.
    fn settle(&mut self) {
        for _ in 0..200 {
            self.append();
            self.answer_send();
        }
        for consumer in 0..CONSUMERS.len() {
            if self.consumers[consumer].waits.is_some() {
                self.consume();
            }
        }
    }

    fn final_reads(&mut self, key: usize) {
        for f in [Function::Start, Function::End] {
            let op = self.op("closer");
            let partition = &self.partitions[key];
            let told = offset(if f == Function::End { partition.end() } else { partition.start });
            self.push("closer", op, EventType::Invoke, f, |event| event.key = Some(KEYS[key].to_owned()));
            self.push("closer", op, EventType::Ok, f, |event| event.offset = Some(told));
        }
        for reader in ["f0", "f1"] {
            let mut at = self.partitions[key].start;
            loop {
                let (op, count) = (self.op(reader), 1 + self.below(9));
                let records = self.records(key, at, count, true);
                let (read, from) = (records.len(), (reader == "f0").then(|| offset(at)));
                self.push(reader, op, EventType::Invoke, Function::Poll, |event| {
                    event.key = Some(KEYS[key].to_owned());
                    event.from = from;
                    event.is_final = Some(true);
                });
                self.push(reader, op, EventType::Ok, Function::Poll, |event| event.records = Some(records));
                at += read;
                if read == 0 {
                    break;
                }
            }
        }
    }
}
