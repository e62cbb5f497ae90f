//! Orders batches: takes commands in log order and decides what each partition's log becomes.
//!
//! A record of the metadata log is a request; only [`apply`] decides whether it takes effect, and decides alike on
//! every proxy:
//!
//! ```text
//! LogRecord --encoding--> Proposal --apply + rules--> State, Outcome (to the proposer), Effects
//!                                                      Effects --> rows of the metadata store, then --> View
//! ```
//!
//! I1. Offsets of a partition are dense: each batch starts at the log end offset.
//! I2. High watermark and log start never go back.
//! I5. Same log position, same state, on every proxy.
//! I6. Per producer and partition, sequences are continuous within an epoch.
//!
//! Never reads a clock, a random number, the network or an unordered map. Time is log time (R2).

pub mod apply;
pub mod checks;
pub mod command;
pub mod digest;
pub mod effect;
pub mod encoding;
pub mod outcome;
pub mod publish;
pub mod rules;
pub mod state;
pub mod view;

#[cfg(test)]
mod tests;
