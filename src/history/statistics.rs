//! Figures of a history that are told, not judged.

use serde::Serialize;

use super::operations::{Action, Operation, Operations, Outcome};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// From the first event to the last.
    pub duration_ns: u64,
    pub keys: usize,
    pub processes: usize,
    pub sends: Outcomes,
    pub polls: Outcomes,
    /// Answers to `end` and `start` together.
    pub offsets_asked: Outcomes,
    /// What polls returned, the same record once for each time it was read.
    pub records: usize,
    pub digests: usize,
    pub notes: usize,
    /// The keys with sends, the one that waited longest first.
    pub without_ack: Vec<WithoutAck>,
    /// Errors of failed and unknown operations, the most frequent first.
    pub errors: Vec<ErrorCount>,
}

/// How operations ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    pub ok: u64,
    pub fail: u64,
    pub info: u64,
    /// Never completed.
    pub open: u64,
}

/// The longest time, between a key's first send and its last, in which no send to it was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WithoutAck {
    pub key: String,
    pub longest_ns: u64,
    /// When it began, since the history began.
    pub since_ns: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorCount {
    pub f: &'static str,
    pub error: String,
    pub count: u64,
}

impl Outcomes {
    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Open => self.open += 1,
            Outcome::Ok => self.ok += 1,
            Outcome::Fail => self.fail += 1,
            Outcome::Info => self.info += 1,
        }
    }
}

pub(super) fn collect(operations: &Operations, by_key: &[Vec<u32>]) -> Statistics {
    let (first, last) = operations.span.unwrap_or_default();
    let mut statistics = Statistics {
        duration_ns: last - first,
        keys: operations.keys.len(),
        processes: operations.processes.len(),
        records: operations.record_count(),
        digests: operations.digests.len(),
        notes: operations.notes.len(),
        ..Statistics::default()
    };
    for o in &operations.all {
        match o.action {
            Action::Send { .. } => statistics.sends.add(o.outcome),
            Action::Poll { .. } => statistics.polls.add(o.outcome),
            Action::End { .. } | Action::Start { .. } => statistics.offsets_asked.add(o.outcome),
            Action::Assign { .. } => {}
        }
    }
    for (key, places) in (0u32..).zip(by_key) {
        let sends = places.iter().map(|at| &operations.all[*at as usize]);
        if let Some((since, longest_ns)) = longest_without_ack(sends) {
            let key = operations.keys.name(key).to_owned();
            statistics.without_ack.push(WithoutAck { key, longest_ns, since_ns: since - first });
        }
    }
    statistics.without_ack.sort_by(|a, b| b.longest_ns.cmp(&a.longest_ns).then_with(|| a.key.cmp(&b.key)));
    let errors = operations.errors.iter();
    statistics.errors =
        errors.map(|((f, error), count)| ErrorCount { f: f.name(), error: error.clone(), count: *count }).collect();
    statistics.errors.sort_by_key(|error| std::cmp::Reverse(error.count));
    statistics
}

/// Where it begins and how long it is.
fn longest_without_ack<'a>(operations: impl Iterator<Item = &'a Operation>) -> Option<(u64, u64)> {
    let mut acks = Vec::new();
    let mut bounds: Option<(u64, u64)> = None;
    for o in operations.filter(|o| matches!(o.action, Action::Send { .. })) {
        let end = if o.outcome == Outcome::Open { o.invoked } else { o.completed };
        let (first, last) = bounds.unwrap_or((o.invoked.time_ns, end.time_ns));
        bounds = Some((first.min(o.invoked.time_ns), last.max(end.time_ns)));
        if o.outcome == Outcome::Ok {
            acks.push(o.completed.time_ns);
        }
    }
    let (first, last) = bounds?;
    acks.extend([first, last]);
    acks.sort_unstable();
    let pauses = acks.windows(2).map(|pair| (pair[0], pair[1] - pair[0]));
    // The first of the longest.
    pauses.rev().max_by_key(|(_, length)| *length)
}
