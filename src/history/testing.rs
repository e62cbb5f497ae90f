//! Writes small histories for tests: each call is one operation of one process, a millisecond a line.

use std::collections::{BTreeMap, BTreeSet};

use super::{AnomalyClass, Event, EventType, Function, Judge, Options, Record, Verdict};
use crate::types::Offset;

pub(super) const KEY: &str = "t-0";

#[derive(Default)]
pub(super) struct History {
    pub(super) events: Vec<Event>,
    ops: BTreeMap<String, u64>,
    time_ns: u64,
}

impl History {
    fn next(&mut self, process: &str) -> u64 {
        let op = self.ops.entry(process.to_owned()).or_default();
        *op += 1;
        *op
    }

    fn push(&mut self, process: &str, op: u64, event_type: EventType, f: Function, set: impl FnOnce(&mut Event)) {
        self.time_ns += 1_000_000;
        let mut event = Event::new(self.time_ns, process, op, event_type, f);
        set(&mut event);
        self.events.push(event);
    }

    pub(super) fn invoke(&mut self, process: &str, f: Function, set: impl FnOnce(&mut Event)) -> u64 {
        let op = self.next(process);
        self.push(process, op, EventType::Invoke, f, |event| {
            event.key = Some(KEY.to_owned());
            set(event);
        });
        op
    }

    pub(super) fn ok(&mut self, process: &str, op: u64, f: Function, set: impl FnOnce(&mut Event)) {
        self.push(process, op, EventType::Ok, f, set);
    }

    pub(super) fn fail(&mut self, process: &str, op: u64, f: Function, error: &str) {
        self.push(process, op, EventType::Fail, f, |event| event.error = Some(error.to_owned()));
    }

    pub(super) fn begin_send(&mut self, process: &str, value: u64) -> u64 {
        self.invoke(process, Function::Send, |event| event.value = Some(value))
    }

    pub(super) fn ack(&mut self, process: &str, op: u64, offset: impl Into<Option<Offset>>) {
        self.ok(process, op, Function::Send, |event| event.offset = offset.into());
    }

    pub(super) fn send(&mut self, process: &str, value: u64, offset: impl Into<Option<Offset>>) {
        let op = self.begin_send(process, value);
        self.ack(process, op, offset);
    }

    pub(super) fn plain_send(&mut self, process: &str, value: u64, offset: Offset) {
        let op = self.invoke(process, Function::Send, |event| {
            event.value = Some(value);
            event.idempotent = Some(false);
        });
        self.ack(process, op, offset);
    }

    pub(super) fn send_that(&mut self, how: EventType, process: &str, value: u64) {
        let op = self.begin_send(process, value);
        self.push(process, op, how, Function::Send, |event| event.error = Some("REQUEST_TIMED_OUT".to_owned()));
    }

    pub(super) fn poll(&mut self, process: &str, records: &[(Offset, u64)]) {
        self.poll_with(process, None, false, records);
    }

    pub(super) fn poll_from(&mut self, process: &str, from: Offset, records: &[(Offset, u64)]) {
        self.poll_with(process, Some(from), false, records);
    }

    pub(super) fn final_poll(&mut self, process: &str, records: &[(Offset, u64)]) {
        self.poll_with(process, None, true, records);
    }

    pub(super) fn poll_with(&mut self, process: &str, from: Option<Offset>, is_final: bool, records: &[(Offset, u64)]) {
        let op = self.invoke(process, Function::Poll, |event| event.from = from);
        let records = records.iter().map(|(offset, value)| Record::new(*offset, *value)).collect();
        self.ok(process, op, Function::Poll, |event| {
            event.records = Some(records);
            event.is_final = is_final.then_some(true);
        });
    }

    pub(super) fn poll_crc(&mut self, process: &str, record: (Offset, u64), crc: u32) {
        let op = self.invoke(process, Function::Poll, |_| {});
        let record = Record { crc: Some(crc), ..Record::new(record.0, record.1) };
        self.ok(process, op, Function::Poll, |event| event.records = Some(vec![record]));
    }

    pub(super) fn poll_that(&mut self, how: EventType, process: &str, from: Offset, error: &str) {
        let op = self.invoke(process, Function::Poll, |event| event.from = Some(from));
        self.push(process, op, how, Function::Poll, |event| event.error = Some(error.to_owned()));
    }

    pub(super) fn out_of_range(&mut self, process: &str, from: Offset) {
        self.poll_that(EventType::Fail, process, from, "OFFSET_OUT_OF_RANGE");
    }

    pub(super) fn assign(&mut self, process: &str, offset: impl Into<Option<Offset>>) {
        let op = self.next(process);
        self.push(process, op, EventType::Ok, Function::Assign, |event| {
            event.key = Some(KEY.to_owned());
            event.offset = offset.into();
        });
    }

    pub(super) fn end(&mut self, process: &str, offset: Offset) {
        let op = self.invoke(process, Function::End, |_| {});
        self.ok(process, op, Function::End, |event| event.offset = Some(offset));
    }

    pub(super) fn start(&mut self, process: &str, offset: Offset) {
        let op = self.invoke(process, Function::Start, |_| {});
        self.ok(process, op, Function::Start, |event| event.offset = Some(offset));
    }

    pub(super) fn digest(&mut self, proxy: &str, position: i64, digest: &str) {
        let op = self.next(proxy);
        self.push(proxy, op, EventType::Ok, Function::Digest, |event| {
            event.proxy = Some(proxy.to_owned());
            event.position = Some(position);
            event.digest = Some(digest.to_owned());
        });
    }

    pub(super) fn note(&mut self, text: &str) {
        let op = self.next("nemesis");
        self.push("nemesis", op, EventType::Ok, Function::Note, |event| event.error = Some(text.to_owned()));
    }
}

#[track_caller]
pub(super) fn judged(events: &[Event]) -> Verdict {
    let mut judge = Judge::new(Options::default());
    for event in events {
        judge.take(event).expect("an event that can be judged");
    }
    judge.verdict().expect("a history that can be judged")
}

pub(super) fn classes(verdict: &Verdict) -> BTreeSet<AnomalyClass> {
    verdict.counts.keys().copied().collect()
}
