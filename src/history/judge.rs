//! Takes events in any order and judges them: pairs invocations with completions, then applies every rule to one
//! partition after another. What is asked of the log, and where each rule lives:
//!
//! - [`sightings`]: one offset, one value; one value, one offset; nothing that nobody sent.
//! - [`polls`]: readers go forward and miss nothing; final reads have no holes.
//! - [`sends`]: what was acknowledged is there, what failed is not, and a producer's order is kept.
//! - [`real_time`]: what was known before a question is in its answer.
//! - [`digests`]: one position of the metadata log, one state.

mod digests;
mod log;
mod polls;
mod real_time;
mod sends;
mod sightings;

use super::event::{Broken, Event};
use super::operations::{Note, Operations};
use super::statistics;
use super::verdict::{Findings, Verdict};

/// Notes shown from before an anomaly.
const NOTES_BEFORE: usize = 3;

#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Anomalies of each class that are told in full; all are counted.
    pub examples: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { examples: 20 }
    }
}

#[derive(Debug, Default)]
pub struct Judge {
    options: Options,
    operations: Operations,
}

impl Judge {
    pub fn new(options: Options) -> Self {
        Self { options, operations: Operations::default() }
    }

    /// Takes the next event; they need not be in the order of time. An error means that the history cannot be judged.
    pub fn take(&mut self, event: &Event) -> Result<(), Broken> {
        self.operations.take(event)
    }

    pub fn verdict(self) -> Result<Verdict, Broken> {
        let Self { options, mut operations } = self;
        operations.finish()?;
        let mut findings = Findings::new(options.examples);
        digests::judge(&operations, &mut findings);
        let by_key = operations.by_key();
        for (key, places) in (0u32..).zip(&by_key) {
            let log = log::Log::new(&operations, key, places)?;
            let seen = sightings::judge(&log, &mut findings);
            let reads = polls::judge(&log, &seen, &mut findings);
            sends::judge(&log, &seen, &reads, &mut findings);
            real_time::judge(&log, &seen, &mut findings);
        }
        let statistics = statistics::collect(&operations, &by_key);
        let counts = findings.counts.clone();
        let mut anomalies = findings.into_anomalies();
        for anomaly in &mut anomalies {
            anomaly.notes = around(&operations, anomaly.time_ns).map(|note| told(&operations, note)).collect();
        }
        Ok(Verdict { counts, anomalies, statistics })
    }
}

/// The last notes from before a time, and the first one after.
fn around(operations: &Operations, time_ns: u64) -> impl Iterator<Item = &Note> {
    let after = operations.notes.partition_point(|note| note.time_ns <= time_ns);
    let end = operations.notes.len().min(after + 1);
    operations.notes[after.saturating_sub(NOTES_BEFORE)..end].iter()
}

fn told(operations: &Operations, note: &Note) -> String {
    format!("{} {}", operations.when(note.time_ns), note.text)
}
