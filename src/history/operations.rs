//! The operations of a history, each put together from its invocation and its completion, and kept small: tens of millions
//! of records are judged in memory.

use std::collections::{BTreeMap, HashMap};

use super::event::{Broken, Event, EventType, Function, Record};
use super::names::Names;
use crate::types::Offset;

/// The error of a poll that says that an offset does not exist.
const OUT_OF_RANGE: &str = "OFFSET_OUT_OF_RANGE";
/// Errors counted one by one; texts that never repeat are counted together.
const ERRORS_KEPT: usize = 200;

/// When a line was written: by its time, and for equal times by the order of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    pub(super) time_ns: u64,
    line: u32,
}

impl Moment {
    pub(super) const NEVER: Self = Self { time_ns: u64::MAX, line: u32::MAX };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// No completion: the process died, or the history ended.
    Open,
    Ok,
    Fail,
    Info,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    Send { value: u64, offset: Option<Offset>, is_idempotent: bool },
    Poll { from: Option<Offset>, first_record: usize, records: u32, is_final: bool, is_out_of_range: bool },
    Assign { offset: Option<Offset> },
    End { offset: Offset },
    Start { offset: Offset },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    pub(super) op: u64,
    pub(super) invoked: Moment,
    pub(super) completed: Moment,
    pub(super) action: Action,
    pub(super) process: u32,
    pub(super) key: u32,
    pub(super) outcome: Outcome,
}

/// What a proxy's state was at a position of the metadata log.
#[derive(Debug)]
pub(super) struct Digest {
    pub(super) time_ns: u64,
    pub(super) process: u32,
    pub(super) op: u64,
    pub(super) position: i64,
    pub(super) digest: String,
    pub(super) proxy: Option<String>,
}

/// Something that happened beside the clients.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) time_ns: u64,
    pub(super) text: String,
}

#[derive(Debug, Default)]
pub(super) struct Operations {
    pub(super) processes: Names,
    pub(super) keys: Names,
    pub(super) all: Vec<Operation>,
    pub(super) digests: Vec<Digest>,
    pub(super) notes: Vec<Note>,
    pub(super) errors: BTreeMap<(Function, String), u64>,
    /// The times of the first and the last event.
    pub(super) span: Option<(u64, u64)>,
    records: Vec<Record>,
    /// Operations of which one half is known.
    halves: HashMap<(u32, u64), usize>,
    taken: u32,
}

/// A key that the completion did not repeat and that the invocation has yet to tell.
const NO_KEY: u32 = u32::MAX;

impl Operations {
    /// Takes the next event of the history, in any order of time.
    pub(super) fn take(&mut self, event: &Event) -> Result<(), Broken> {
        let moment = Moment { time_ns: event.time_ns, line: self.taken };
        self.store(event, moment).map_err(|what| Broken { event: moment.line as usize, what })?;
        let (first, last) = self.span.unwrap_or((event.time_ns, event.time_ns));
        self.span = Some((first.min(event.time_ns), last.max(event.time_ns)));
        self.taken = self.taken.checked_add(1).ok_or_else(|| Broken {
            event: moment.line as usize,
            what: "a history has at most four billion events: judge its parts".to_owned(),
        })?;
        Ok(())
    }

    fn store(&mut self, event: &Event, moment: Moment) -> Result<(), String> {
        if let (EventType::Fail | EventType::Info, Some(error)) = (event.event_type, &event.error) {
            self.count_error(event.f, error);
        }
        match event.f {
            Function::Note => {
                let text = event.error.clone().unwrap_or_default();
                self.notes.push(Note { time_ns: event.time_ns, text });
                Ok(())
            }
            Function::Digest if event.event_type == EventType::Ok => self.store_digest(event),
            Function::Assign if matches!(event.event_type, EventType::Ok | EventType::Info) => {
                self.store_assign(event, moment)
            }
            Function::Digest | Function::Assign => Ok(()),
            Function::Send | Function::Poll | Function::End | Function::Start => self.pair(event, moment),
        }
    }

    fn count_error(&mut self, f: Function, error: &str) {
        let is_known = self.errors.contains_key(&(f, error.to_owned()));
        let name = if is_known || self.errors.len() < ERRORS_KEPT { error } else { "(others)" };
        *self.errors.entry((f, name.to_owned())).or_default() += 1;
    }

    fn store_digest(&mut self, event: &Event) -> Result<(), String> {
        let position = event.position.ok_or("a digest needs its position of the metadata log")?;
        let digest = event.digest.clone().ok_or("a digest event needs its digest")?;
        let process = self.processes.number(&event.process);
        let proxy = event.proxy.clone();
        self.digests.push(Digest { time_ns: event.time_ns, process, op: event.op, position, digest, proxy });
        Ok(())
    }

    fn store_assign(&mut self, event: &Event, moment: Moment) -> Result<(), String> {
        let key = event.key.as_ref().ok_or("an assign needs its key")?;
        self.all.push(Operation {
            op: event.op,
            invoked: moment,
            completed: moment,
            action: Action::Assign { offset: known(event.offset) },
            process: self.processes.number(&event.process),
            key: self.keys.number(key),
            outcome: Outcome::Ok,
        });
        Ok(())
    }

    /// Puts the event to its other half, or keeps it until that comes.
    fn pair(&mut self, event: &Event, moment: Moment) -> Result<(), String> {
        let process = self.processes.number(&event.process);
        let key = event.key.as_ref().map_or(NO_KEY, |key| self.keys.number(key));
        let half = half(event, key, process, moment, self.records.len())?;
        if event.event_type == EventType::Ok {
            self.records.extend(event.records.iter().flatten());
        }
        match self.halves.remove(&(process, event.op)) {
            None => {
                self.halves.insert((process, event.op), self.all.len());
                self.all.push(half);
            }
            Some(at) => self.all[at] = join(self.all[at], half)?,
        }
        Ok(())
    }

    /// After the last event: whether all of it can be judged.
    pub(super) fn finish(&mut self) -> Result<(), Broken> {
        let alone = self.halves.values().map(|at| &self.all[*at]).filter(|o| o.invoked == Moment::NEVER);
        if let Some(o) = alone.min_by_key(|o| o.completed.line) {
            let what = format!("{} completes, but nothing invokes it (or it completes twice)", self.who(o));
            return Err(Broken { event: o.completed.line as usize, what });
        }
        self.halves = HashMap::new();
        let paired = self.all.iter().enumerate().filter(|(_, o)| !matches!(o.action, Action::Assign { .. }));
        let mut ids: Vec<_> = paired.map(|(at, o)| (o.process, o.op, at)).collect();
        ids.sort_unstable();
        let twice = ids.windows(2).find(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1));
        if let Some(pair) = twice {
            let o = &self.all[pair[1].2];
            let what = format!("{} was invoked before: op must be unique within a process", self.who(o));
            return Err(Broken { event: o.invoked.line as usize, what });
        }
        self.notes.sort_by_key(|note| note.time_ns);
        Ok(())
    }

    /// For each key, its operations as places in `all`.
    pub(super) fn by_key(&self) -> Vec<Vec<u32>> {
        let mut by_key = vec![Vec::new(); self.keys.len()];
        for (at, o) in (0u32..).zip(&self.all) {
            by_key[o.key as usize].push(at);
        }
        by_key
    }

    pub(super) fn records(&self, o: &Operation) -> &[Record] {
        match o.action {
            Action::Poll { first_record, records, .. } => &self.records[first_record..first_record + records as usize],
            _ => &[],
        }
    }

    pub(super) fn record_count(&self) -> usize {
        self.records.len()
    }

    /// The event that an operation began with, for messages about broken histories.
    pub(super) fn broken(&self, o: &Operation, what: String) -> Broken {
        Broken { event: o.invoked.line as usize, what }
    }

    /// The process and its operation, as reports name them.
    pub(super) fn who(&self, o: &Operation) -> String {
        format!("{} (op {})", self.processes.name(o.process), o.op)
    }

    /// Seconds since the history began.
    pub(super) fn when(&self, time_ns: u64) -> String {
        let since = time_ns.saturating_sub(self.span.map_or(0, |(first, _)| first));
        format!("{}.{:06} s", since / 1_000_000_000, since % 1_000_000_000 / 1000)
    }
}

/// Clients write a negative offset where they were told none.
fn known(offset: Option<Offset>) -> Option<Offset> {
    offset.filter(|offset| *offset >= 0)
}

/// What one event says of its operation.
fn half(event: &Event, key: u32, process: u32, moment: Moment, stored: usize) -> Result<Operation, String> {
    let (outcome, invoked, completed) = match event.event_type {
        EventType::Invoke => (Outcome::Open, moment, Moment::NEVER),
        EventType::Ok => (Outcome::Ok, Moment::NEVER, moment),
        EventType::Fail => (Outcome::Fail, Moment::NEVER, moment),
        EventType::Info => (Outcome::Info, Moment::NEVER, moment),
    };
    let f = event.f.name();
    if outcome == Outcome::Open && key == NO_KEY {
        return Err(format!("the invocation of a {f} needs its key"));
    }
    let told = || match (outcome, known(event.offset)) {
        (Outcome::Ok, None) => Err(format!("the ok of a {f} needs its offset")),
        (_, offset) => Ok(offset.unwrap_or_default()),
    };
    let action = match event.f {
        Function::Send => {
            if outcome == Outcome::Open && event.value.is_none() {
                return Err("the invocation of a send needs its value".to_owned());
            }
            let offset = known(event.offset).filter(|_| outcome == Outcome::Ok);
            Action::Send {
                value: event.value.unwrap_or_default(),
                offset,
                is_idempotent: event.idempotent.unwrap_or(true),
            }
        }
        Function::Poll => {
            let records = event.records.as_ref().filter(|_| outcome == Outcome::Ok);
            if outcome == Outcome::Ok && records.is_none() {
                return Err("the ok of a poll needs its records, if only []".to_owned());
            }
            Action::Poll {
                from: known(event.from),
                first_record: stored,
                records: records.map_or(0, Vec::len).try_into().map_err(|_| "a poll with too many records")?,
                is_final: event.is_final.unwrap_or(false),
                is_out_of_range: outcome == Outcome::Fail && event.error.as_deref() == Some(OUT_OF_RANGE),
            }
        }
        Function::End => Action::End { offset: told()? },
        Function::Start => Action::Start { offset: told()? },
        Function::Assign | Function::Digest | Function::Note => return Err(format!("a {f} has no two halves")),
    };
    Ok(Operation { op: event.op, invoked, completed, action, process, key, outcome })
}

/// One operation of two halves, in whichever order they came.
fn join(one: Operation, other: Operation) -> Result<Operation, String> {
    let (begin, end) = if one.outcome == Outcome::Open { (one, other) } else { (other, one) };
    if begin.outcome != Outcome::Open {
        return Err(format!("op {} completes twice", one.op));
    }
    if end.outcome == Outcome::Open {
        return Err(format!("op {} was invoked before: op must be unique within a process", one.op));
    }
    if end.key != NO_KEY && end.key != begin.key {
        return Err(format!("op {} completes with another key than it was invoked with", one.op));
    }
    if end.completed < begin.invoked {
        return Err(format!("op {} completes before it is invoked: all lines must use one clock", one.op));
    }
    let action = match (begin.action, end.action) {
        (Action::Send { value, is_idempotent, .. }, Action::Send { offset, .. }) => {
            Action::Send { value, offset, is_idempotent }
        }
        (
            Action::Poll { from, is_final: was_final, .. },
            Action::Poll { from: told, first_record, records, is_final, is_out_of_range },
        ) => Action::Poll {
            from: from.or(told),
            first_record,
            records,
            is_final: is_final || was_final,
            is_out_of_range,
        },
        (Action::End { .. }, Action::End { offset }) => Action::End { offset },
        (Action::Start { .. }, Action::Start { offset }) => Action::Start { offset },
        _ => return Err(format!("op {} completes as something else than it was invoked as", one.op)),
    };
    Ok(Operation { completed: end.completed, outcome: end.outcome, action, ..begin })
}
