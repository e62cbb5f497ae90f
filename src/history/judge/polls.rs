//! nonmonotonic-poll, poll-skip, gap: a reader goes forward and misses nothing, and a final read has no holes.
//!
//! Offsets that may lie below the log start are not missed.

use super::log::{Log, Place, answered};
use super::sightings::Sightings;
use crate::history::event::Record;
use crate::history::operations::{Action, Moment, Outcome};
use crate::history::verdict::{AnomalyClass, Findings};
use crate::types::Offset;

/// What one reader's final polls covered.
#[derive(Debug, Clone, Copy)]
pub(super) struct FinalRead {
    low: Offset,
    /// After the last offset.
    high: Offset,
    /// It reached an end that was asked for after the last acknowledgement, so nothing lies behind it.
    is_complete: bool,
    pub(super) last_poll: Place,
}

impl FinalRead {
    pub(super) fn covers(&self, offset: Offset) -> bool {
        self.low <= offset && (offset < self.high || self.is_complete)
    }

    /// From the log start to the end.
    pub(super) fn is_whole(&self, floor: Offset) -> bool {
        self.is_complete && self.low <= floor
    }

    pub(super) fn told(&self) -> String {
        let end = if self.is_complete { ", the end" } else { "" };
        format!("from {} up to {}{end}", self.low, self.high)
    }
}

/// What final reads there were, and where they had to begin.
pub(super) struct Reads {
    pub(super) finals: Vec<FinalRead>,
    /// The log start, or the lowest offset that is known of.
    pub(super) floor: Offset,
}

pub(super) fn judge(log: &Log<'_>, seen: &Sightings, findings: &mut Findings) -> Reads {
    let lowest = seen.slots.first_key_value().map(|(offset, _)| *offset);
    let floor = log.log_start.highest.or(lowest).unwrap_or(0);
    let mut walk = Walk { log, seen, findings, reads: Reads { finals: Vec::new(), floor }, reader: Reader::default() };
    let mut process = None;
    for place in &log.consuming {
        if process.replace(log.at(*place).process) != Some(log.at(*place).process) {
            walk.end_final_read();
            walk.reader = Reader::default();
        }
        walk.step(*place);
    }
    walk.end_final_read();
    let mut reads = walk.reads;
    let end = true_end(log);
    for read in &mut reads.finals {
        read.is_complete = end.is_some_and(|end| end <= read.high);
    }
    short_of_the_end(log, seen, &reads, end, findings);
    reads
}

/// An end that was asked for when every acknowledgement was there.
fn true_end(log: &Log<'_>) -> Option<Offset> {
    let after = |place: &&Place| log.last_ack.is_none_or(|ack| log.at(**place).invoked > ack);
    log.ends.iter().filter(after).map(|place| answered(log.at(*place))).min()
}

/// Where one process is.
#[derive(Default)]
struct Reader {
    /// The last offset that it read, and the poll.
    last: Option<(Offset, Place)>,
    /// Where it was put.
    assigned: Option<Offset>,
    is_final: bool,
    has_read_finally: bool,
    read: Option<FinalRead>,
}

/// A hole before a record.
struct Hole {
    from: Offset,
    to: Offset,
}

struct Walk<'a, 'b> {
    log: &'a Log<'b>,
    seen: &'a Sightings,
    findings: &'a mut Findings,
    reads: Reads,
    reader: Reader,
}

impl Walk<'_, '_> {
    fn step(&mut self, place: Place) {
        let o = self.log.at(place);
        match (o.action, o.outcome) {
            (Action::Assign { offset }, _) => self.start_anew(offset),
            // Whether the client went on is not known.
            (Action::Poll { .. }, Outcome::Open | Outcome::Info) => self.start_anew(None),
            (Action::Poll { from, is_final, .. }, Outcome::Ok) => {
                if is_final != self.reader.is_final {
                    let assigned = self.reader.assigned;
                    self.start_anew(assigned);
                    self.reader.is_final = is_final;
                }
                self.answer(place, from);
            }
            _ => {}
        }
    }

    fn start_anew(&mut self, assigned: Option<Offset>) {
        self.end_final_read();
        let Reader { is_final, has_read_finally, .. } = self.reader;
        self.reader = Reader { assigned, is_final, has_read_finally, ..Reader::default() };
    }

    fn end_final_read(&mut self) {
        self.reads.finals.extend(self.reader.read.take());
    }

    /// One answered poll.
    fn answer(&mut self, place: Place, from: Option<Offset>) {
        let log = self.log;
        let records = log.operations.records(log.at(place));
        if self.reader.is_final {
            self.begin_final_read(place, from, records);
        }
        let mut went_back = false;
        for (index, record) in records.iter().enumerate() {
            let last = self.reader.last;
            match last {
                Some((last, _)) if record.offset <= last => went_back |= self.back(place, record, went_back),
                _ if index == 0 && from.is_some_and(|from| record.offset < from) => {
                    went_back |= self.before_from(place, record, from.unwrap_or_default());
                }
                _ => self.forward(place, record, index == 0, from),
            }
            self.reader.last = Some((record.offset, place));
            if let Some(read) = &mut self.reader.read {
                read.high = read.high.max(record.offset + 1);
                read.last_poll = place;
            }
        }
    }

    /// A final read begins where it was put, and the first one of a process at the log start if it was put nowhere.
    fn begin_final_read(&mut self, place: Place, from: Option<Offset>, records: &[Record]) {
        if self.reader.read.is_some() {
            return;
        }
        let put = from.or(self.reader.assigned).or_else(|| (!self.reader.has_read_finally).then_some(0));
        let Some(low) = put.or_else(|| records.first().map(|record| record.offset)) else { return };
        self.reader.has_read_finally = true;
        let high = low.max(self.reads.floor);
        self.reader.read = Some(FinalRead { low, high, is_complete: false, last_poll: place });
    }

    fn back(&mut self, place: Place, record: &Record, is_told: bool) -> bool {
        let (log, Some((last, before))) = (self.log, self.reader.last) else { return false };
        if !is_told {
            self.findings.add(AnomalyClass::NonmonotonicPoll, log.at(place).completed.time_ns, || {
                let text = format!(
                    "{} read offset {} at {} after {} had read offset {last}, with no assign between",
                    log.who(place),
                    record.offset,
                    log.answered(place),
                    log.who(before)
                );
                log.tell(text, &[before, place])
            });
        }
        true
    }

    fn before_from(&mut self, place: Place, record: &Record, from: Offset) -> bool {
        let log = self.log;
        self.findings.add(AnomalyClass::NonmonotonicPoll, log.at(place).completed.time_ns, || {
            let (who, when) = (log.who(place), log.answered(place));
            log.tell(format!("{who} asked from offset {from} and read offset {} at {when}", record.offset), &[place])
        });
        true
    }

    /// A record behind the last one: was there anything between?
    fn forward(&mut self, place: Place, record: &Record, is_first: bool, from: Option<Offset>) {
        let next = self.reader.last.map(|(last, _)| last + 1);
        let is_final = self.reader.is_final;
        let due = match next {
            Some(next) => next,
            None if is_final => self.reader.read.map_or(record.offset, |read| read.high),
            None => from.unwrap_or(record.offset),
        };
        let Some(hole) = self.missed(due, record.offset, self.log.at(place).completed) else { return };
        if is_final || !is_first {
            self.gap(place, &hole);
        } else {
            self.skip(place, &hole);
        }
    }

    /// What is missing between the offset that was due and the one that came.
    fn missed(&self, due: Offset, came: Offset, at: Moment) -> Option<Hole> {
        let from = due.max(self.log.log_start.at(at).unwrap_or(0));
        (from < came).then_some(Hole { from, to: came })
    }

    fn gap(&mut self, place: Place, hole: &Hole) {
        let (log, before) = (self.log, self.reader.last.map(|(_, before)| before));
        let whole = if self.reader.is_final { " of a final read" } else { "" };
        self.findings.add(AnomalyClass::Gap, log.at(place).completed.time_ns, || {
            let text = format!(
                "{} missing before offset {} in a poll{whole} by {}, answered at {}",
                offsets(hole),
                hole.to,
                log.who(place),
                log.answered(place)
            );
            let places: Vec<_> = before.filter(|before| *before != place).into_iter().chain([place]).collect();
            log.tell(text, &places)
        });
    }

    fn skip(&mut self, place: Place, hole: &Hole) {
        let Some((known, _)) = self.seen.slots.range(hole.from..hole.to).next() else { return };
        let (log, before) = (self.log, self.reader.last);
        self.findings.add(AnomalyClass::PollSkip, log.at(place).completed.time_ns, || {
            let came_from = match before {
                Some((last, before)) => format!("from offset {last} of {}", log.who(before)),
                None => format!("from offset {}, which it asked for,", hole.from),
            };
            let text = format!(
                "{} jumped {came_from} to offset {} at {}, over offset {known}, which exists",
                log.who(place),
                hole.to,
                log.answered(place)
            );
            let places: Vec<_> = before.map(|(_, before)| before).into_iter().chain([place]).collect();
            log.tell(text, &places)
        });
    }
}

/// What is missing, and its verb.
fn offsets(hole: &Hole) -> String {
    match hole.to - hole.from {
        1 => format!("offset {} is", hole.from),
        count => format!("{count} offsets from {} to {} are", hole.from, hole.to - 1),
    }
}

/// A final read that stops before what is known to be there has a hole at its end. One that goes on to the end is
/// enough: a reader may have been replaced by another.
fn short_of_the_end(log: &Log<'_>, seen: &Sightings, reads: &Reads, end: Option<Offset>, findings: &mut Findings) {
    let Some(read) = reads.finals.iter().max_by_key(|read| read.high) else { return };
    let known = seen.slots.last_key_value().map(|(offset, _)| offset + 1);
    let Some(to) = known.max(end).filter(|to| *to > read.high) else { return };
    let place = read.last_poll;
    findings.add(AnomalyClass::Gap, log.at(place).completed.time_ns, || {
        let missing = offsets(&Hole { from: read.high, to });
        let text = format!(
            "{missing} known to exist, but no final read got there: the last was by {}, answered at {}",
            log.who(place),
            log.answered(place)
        );
        log.tell(text, &[place])
    });
}
