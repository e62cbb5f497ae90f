//! Fetch and ListOffsets for diskless partitions: from coordinates in the applied state to bytes for a client.
//!
//! 1. What is served of a partition is a contiguous prefix of valid batches from the offset that was asked for; a
//!    batch that cannot be read ends it, and is never skipped.
//! 2. "No such offset" is said only after a barrier (R11), or where the log start proves it (I2).
//! 3. Stored bytes are never changed: the header that is served is a copy.
//!
//! Never asks the metadata store: the view in memory has every coordinate.

mod freshness;
pub mod list_offsets;
mod memory;
mod planner;
mod reader;
mod service;
mod session;
pub mod sessions;
#[cfg(test)]
mod tests;

pub use freshness::{Freshness, NotFresh};
pub use list_offsets::{ListedOffset, OffsetSpec};
pub use memory::FetchMemory;
pub use reader::{PartitionBytes, ReadPartition, Reader};
pub use service::{FetchPartition, FetchRequest, FetchService, FetchedPartition};
pub use session::{AnsweredPartition, WantedPartition};
pub use sessions::{FetchContext, FetchSessions};
