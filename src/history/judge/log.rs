//! The operations of one partition, put in the orders that the rules need.

use std::collections::HashMap;

use crate::history::event::Broken;
use crate::history::operations::{Action, Moment, Operation, Operations, Outcome};
use crate::history::verdict::{OpId, Told};
use crate::types::Offset;

/// A place in `Operations::all`.
pub(super) type Place = u32;

pub(super) struct Log<'a> {
    pub(super) operations: &'a Operations,
    key: u32,
    /// Each producer's in the order in which it sent.
    pub(super) sends: Vec<Place>,
    /// Polls that were answered, in the order of their answers.
    pub(super) answers: Vec<Place>,
    /// All polls and assigns, each process's in its order.
    pub(super) consuming: Vec<Place>,
    /// Answered `end` operations, and `start` operations, in the order of their invocations.
    pub(super) ends: Vec<Place>,
    pub(super) starts: Vec<Place>,
    /// Polls that were told that their offset is out of range.
    pub(super) out_of_range: Vec<Place>,
    /// Who sent each value.
    pub(super) senders: HashMap<u64, Place>,
    pub(super) log_start: LogStart,
    /// The last acknowledgement of a send.
    pub(super) last_ack: Option<Moment>,
}

impl<'a> Log<'a> {
    pub(super) fn new(operations: &'a Operations, key: u32, places: &[Place]) -> Result<Self, Broken> {
        let pick = |want: fn(&Operation) -> bool| -> Vec<Place> {
            places.iter().copied().filter(|at| want(&operations.all[*at as usize])).collect()
        };
        let is_ok = |o: &Operation| o.outcome == Outcome::Ok;
        let mut log = Self {
            operations,
            key,
            sends: pick(|o| matches!(o.action, Action::Send { .. })),
            answers: pick(|o| matches!(o.action, Action::Poll { .. }) && o.outcome == Outcome::Ok),
            consuming: pick(|o| matches!(o.action, Action::Poll { .. } | Action::Assign { .. })),
            ends: pick(|o| matches!(o.action, Action::End { .. }) && o.outcome == Outcome::Ok),
            starts: pick(|o| matches!(o.action, Action::Start { .. }) && o.outcome == Outcome::Ok),
            out_of_range: pick(|o| matches!(o.action, Action::Poll { is_out_of_range: true, .. })),
            senders: HashMap::new(),
            log_start: LogStart::default(),
            last_ack: None,
        };
        let at = |place: &Place| &operations.all[*place as usize];
        log.sends.sort_unstable_by_key(|s| (at(s).process, at(s).op));
        log.consuming.sort_by_key(|c| (at(c).process, at(c).op));
        log.answers.sort_unstable_by_key(|p| at(p).completed);
        log.ends.sort_unstable_by_key(|e| at(e).invoked);
        log.starts.sort_unstable_by_key(|s| at(s).invoked);
        log.log_start = LogStart::new(log.starts.iter().map(|s| (at(s).invoked, answered(at(s)))));
        log.last_ack = log.sends.iter().map(at).filter(|o| is_ok(o)).map(|o| o.completed).max();
        log.senders = senders(operations, &log.sends)?;
        Ok(log)
    }

    pub(super) fn at(&self, place: Place) -> &'a Operation {
        &self.operations.all[place as usize]
    }

    pub(super) fn who(&self, place: Place) -> String {
        self.operations.who(self.at(place))
    }

    /// When it was asked for.
    pub(super) fn asked(&self, place: Place) -> String {
        self.operations.when(self.at(place).invoked.time_ns)
    }

    /// When it was answered.
    pub(super) fn answered(&self, place: Place) -> String {
        self.operations.when(self.at(place).completed.time_ns)
    }

    pub(super) fn tell(&self, text: String, places: &[Place]) -> Told {
        let id = |place: &Place| {
            let o = self.at(*place);
            OpId { process: self.operations.processes.name(o.process).to_owned(), op: o.op }
        };
        Told { key: self.operations.keys.name(self.key).to_owned(), text, ops: places.iter().map(id).collect() }
    }
}

/// Whose each value is. A value that is sent twice would make every rule guess.
fn senders(operations: &Operations, sends: &[Place]) -> Result<HashMap<u64, Place>, Broken> {
    let mut senders = HashMap::with_capacity(sends.len());
    for place in sends {
        let o = &operations.all[*place as usize];
        let Action::Send { value, .. } = o.action else { continue };
        if let Some(other) = senders.insert(value, *place) {
            let (first, second) = (operations.who(&operations.all[other as usize]), operations.who(o));
            let key = operations.keys.name(o.key);
            let what = format!("value {value} of {key} is sent by {first} and by {second}: values must be unique");
            return Err(operations.broken(o, what));
        }
    }
    Ok(senders)
}

/// The offset that an `end` or a `start` was answered with.
pub(super) fn answered(o: &Operation) -> Offset {
    match o.action {
        Action::End { offset } | Action::Start { offset } => offset,
        _ => 0,
    }
}

/// What `start` answers tell: below the log start nothing is missed.
#[derive(Debug, Default)]
pub(super) struct LogStart {
    /// Each answer's invocation, and the lowest answer from there on.
    from: Vec<(Moment, Offset)>,
    /// The highest answer.
    pub(super) highest: Option<Offset>,
}

impl LogStart {
    /// Takes answers in the order of their invocations.
    fn new(answers: impl Iterator<Item = (Moment, Offset)>) -> Self {
        let mut from: Vec<_> = answers.collect();
        let highest = from.iter().map(|(_, offset)| *offset).max();
        let mut lowest = Offset::MAX;
        for (_, offset) in from.iter_mut().rev() {
            lowest = lowest.min(*offset);
            *offset = lowest;
        }
        Self { from, highest }
    }

    /// The highest that the log start can have been at a moment, as far as it was ever told: it never goes back, so an
    /// answer that was asked for later bounds it.
    pub(super) fn at(&self, moment: Moment) -> Option<Offset> {
        let later = self.from.partition_point(|(invoked, _)| *invoked <= moment);
        self.from.get(later).map(|(_, offset)| *offset).or(self.highest)
    }
}

/// The highest offset that was known at each moment, and who knew.
#[derive(Debug, Default)]
pub(super) struct Highest(Vec<(Moment, Offset, Place)>);

impl Highest {
    pub(super) fn new(facts: impl Iterator<Item = (Moment, Offset, Place)>) -> Self {
        let mut facts: Vec<_> = facts.collect();
        facts.sort_unstable();
        let mut highest = Offset::MIN;
        facts.retain(|(_, offset, _)| {
            let is_higher = *offset > highest;
            highest = highest.max(*offset);
            is_higher
        });
        Self(facts)
    }

    pub(super) fn before(&self, moment: Moment) -> Option<(Offset, Place)> {
        let known = self.0.partition_point(|(at, _, _)| *at < moment);
        known.checked_sub(1).map(|last| (self.0[last].1, self.0[last].2))
    }
}
