//! What is reported: the classes of anomalies, each with its count and its first examples.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

pub use super::statistics::{ErrorCount, Outcomes, Statistics, WithoutAck};

/// A promise of a partition that was broken. The names are stable: programs may look for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnomalyClass {
    /// Acknowledged, and not there in a final read that covered its offset.
    LostWrite,
    /// Acknowledged and never read, where no final read could have told that it is lost.
    Unseen,
    /// One value of an idempotent producer at two offsets.
    Duplicate,
    /// A send that certainly failed was read.
    AbortedRead,
    /// One producer's sends to a key lie in another order than they were sent.
    Reorder,
    /// A hole between offsets, in a final read or in one answer.
    Gap,
    /// One offset showed two values or two checksums, or a value lies elsewhere than acknowledged.
    InconsistentOffset,
    /// A value was read that nobody had sent.
    Phantom,
    /// An acknowledged offset, an end or a start is lower than one that was known before it was asked for.
    OffsetGoingBack,
    /// Successive polls went back or repeated themselves.
    NonmonotonicPoll,
    /// Successive polls jumped over a value that is there.
    PollSkip,
    /// An end was told that does not cover what was acknowledged or read before.
    StaleTail,
    /// An offset that exists was called out of range.
    FalseOutOfRange,
    /// Two digests for one position of the metadata log.
    DigestMismatch,
}

impl AnomalyClass {
    pub const ALL: [Self; 14] = [
        Self::LostWrite,
        Self::Unseen,
        Self::Duplicate,
        Self::AbortedRead,
        Self::Reorder,
        Self::Gap,
        Self::InconsistentOffset,
        Self::Phantom,
        Self::OffsetGoingBack,
        Self::NonmonotonicPoll,
        Self::PollSkip,
        Self::StaleTail,
        Self::FalseOutOfRange,
        Self::DigestMismatch,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::LostWrite => "lost-write",
            Self::Unseen => "unseen",
            Self::Duplicate => "duplicate",
            Self::AbortedRead => "aborted-read",
            Self::Reorder => "reorder",
            Self::Gap => "gap",
            Self::InconsistentOffset => "inconsistent-offset",
            Self::Phantom => "phantom",
            Self::OffsetGoingBack => "offset-going-back",
            Self::NonmonotonicPoll => "nonmonotonic-poll",
            Self::PollSkip => "poll-skip",
            Self::StaleTail => "stale-tail",
            Self::FalseOutOfRange => "false-out-of-range",
            Self::DigestMismatch => "digest-mismatch",
        }
    }
}

/// One operation of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OpId {
    pub process: String,
    pub op: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Anomaly {
    pub class: AnomalyClass,
    /// The partition; empty for what concerns none.
    pub key: String,
    /// When it showed.
    pub time_ns: u64,
    /// What is wrong, with offsets, values, processes and times.
    pub text: String,
    pub ops: Vec<OpId>,
    /// Notes of the history from before it showed, and the first one after.
    pub notes: Vec<String>,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, key, text, .. } = self;
        let colon = if key.is_empty() { "" } else { ": " };
        write!(f, "{}: {key}{colon}{text}", class.name())
    }
}

/// All that a history showed.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// How many there are of each class that was seen.
    pub counts: BTreeMap<AnomalyClass, u64>,
    /// The first of each class, by class and time.
    pub anomalies: Vec<Anomaly>,
    pub statistics: Statistics,
}

impl Verdict {
    pub fn is_valid(&self) -> bool {
        self.counts.is_empty()
    }
}

/// Collects anomalies: counts all, keeps the first few of each class.
#[derive(Debug)]
pub(super) struct Findings {
    examples: usize,
    pub(super) counts: BTreeMap<AnomalyClass, u64>,
    kept: BTreeMap<AnomalyClass, Vec<Anomaly>>,
}

impl Findings {
    pub(super) fn new(examples: usize) -> Self {
        Self { examples, counts: BTreeMap::new(), kept: BTreeMap::new() }
    }

    /// Counts one; `tell` is only asked if it is among the first.
    pub(super) fn add(&mut self, class: AnomalyClass, time_ns: u64, tell: impl FnOnce() -> Told) {
        *self.counts.entry(class).or_default() += 1;
        let kept = self.kept.entry(class).or_default();
        let place = kept.partition_point(|earlier| earlier.time_ns <= time_ns);
        if place >= self.examples {
            return;
        }
        let Told { key, text, ops } = tell();
        kept.insert(place, Anomaly { class, key, time_ns, text, ops, notes: Vec::new() });
        kept.truncate(self.examples);
    }

    pub(super) fn into_anomalies(self) -> Vec<Anomaly> {
        self.kept.into_values().flatten().collect()
    }
}

/// What is told of an anomaly beside its class and time.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) key: String,
    pub(super) text: String,
    pub(super) ops: Vec<OpId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_by_time_are_kept_and_all_are_counted() {
        let mut findings = Findings::new(2);
        for time_ns in [5, 3, 9, 1, 4] {
            let tell = || Told { key: String::new(), text: time_ns.to_string(), ops: Vec::new() };
            findings.add(AnomalyClass::Gap, time_ns, tell);
        }
        assert_eq!(findings.counts, BTreeMap::from([(AnomalyClass::Gap, 5)]));
        let texts: Vec<_> = findings.into_anomalies().into_iter().map(|a| a.text).collect();
        assert_eq!(texts, ["1", "3"]);
    }

    #[test]
    fn names_are_what_json_says() {
        for class in AnomalyClass::ALL {
            assert_eq!(serde_json::to_string(&class).expect("a name"), format!("\"{}\"", class.name()));
        }
    }
}
