//! Judges histories: what clients asked of partitions and what they were told, as lines of text or as values; out comes
//! every promise of a log that was broken, with the offsets, values and clients that show it.
//!
//! The format is in `FORMAT.md` beside this file. Never reads a clock or a file, and knows nothing of proxies: the same
//! judge looks at simulated runs, at real ones, and at Kafka's own partitions.
//!
//! - [`event`]: one line, read and written.
//! - [`judge`]: takes events, pairs them, and applies the rules, one partition after another.
//! - [`verdict`]: the classes of anomalies, and what is reported of them.

pub mod event;
pub mod judge;
mod names;
mod operations;
mod statistics;
pub mod verdict;

#[cfg(test)]
mod generate;
#[cfg(test)]
mod mutations;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use event::{Broken, Event, EventType, Function, Record};
pub use judge::{Judge, Options};
pub use verdict::{Anomaly, AnomalyClass, OpId, Verdict};
