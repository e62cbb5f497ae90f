//! Produce for diskless partitions: batches are gathered in the active segment, which is rolled, uploaded and
//! committed; each batch is answered with the place that the metadata log gave it.
//!
//! 1. A batch is answered as accepted only after its segment was durable, its commit was read back from the log and
//!    applied here.
//! 2. The order of `append` calls is the order of bytes in segments, and the order of commits in the log. Uploads
//!    run side by side; commits never overtake each other.
//! 3. A batch whose outcome is not known is answered with a retriable code, never as accepted.
//! 4. Bytes held are bounded by [`Config::inflight_max_bytes`]. Without traffic nothing is written.
//!
//! Never looks inside records, never decides an offset.

mod active_segment;
mod answers;
mod commit_log;
mod follows;
mod roll;
mod service;
#[cfg(test)]
mod tests;

pub use answers::{BatchResult, Rejected};
pub use commit_log::{CommitError, CommitLog};
pub use service::{BatchToAppend, Config, ProduceCounts, ProduceService, Reservation};
