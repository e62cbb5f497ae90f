//! Writes down what clients did and saw, for the judge.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sidestream::history::{Event, EventType, Function};

use super::time::SimTime;

#[derive(Clone)]
pub(crate) struct Recorder {
    events: Arc<Mutex<Vec<Event>>>,
    time: SimTime,
}

impl Recorder {
    pub(crate) fn new(time: SimTime) -> Self {
        Self { events: Arc::default(), time }
    }

    pub(crate) fn process(&self, name: String) -> Process {
        Process { recorder: self.clone(), name, next_op: AtomicU64::new(1) }
    }

    pub(crate) fn note(&self, text: String) {
        let event = Event::new(self.time.elapsed_ns(), "nemesis", 0, EventType::Ok, Function::Note);
        self.push(Event { error: Some(text), ..event });
    }

    fn push(&self, event: Event) {
        self.events.lock().push(event);
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().clone()
    }
}

/// One client.
pub(crate) struct Process {
    recorder: Recorder,
    pub(crate) name: String,
    next_op: AtomicU64,
}

impl Process {
    /// Notes that an operation begins; the event has what the closure puts into it.
    pub(crate) fn invoke(&self, f: Function, key: &str, fill: impl FnOnce(&mut Event)) -> u64 {
        let op = self.next_op.fetch_add(1, Ordering::Relaxed);
        self.write(op, EventType::Invoke, f, key, fill);
        op
    }

    pub(crate) fn complete(&self, op: u64, how: EventType, f: Function, key: &str, fill: impl FnOnce(&mut Event)) {
        self.write(op, how, f, key, fill);
    }

    /// Something that has no beginning.
    pub(crate) fn note(&self, f: Function, key: &str, fill: impl FnOnce(&mut Event)) {
        let op = self.next_op.fetch_add(1, Ordering::Relaxed);
        self.write(op, EventType::Ok, f, key, fill);
    }

    fn write(&self, op: u64, how: EventType, f: Function, key: &str, fill: impl FnOnce(&mut Event)) {
        let mut event = Event::new(self.recorder.time.elapsed_ns(), &self.name, op, how, f);
        if !key.is_empty() {
            event.key = Some(key.to_owned());
        }
        fill(&mut event);
        self.recorder.push(event);
    }
}
