//! The words every other module speaks: ids, positions, error codes. No I/O, no dependencies inside the crate.

mod broker;
mod error_code;
mod ids;

pub use broker::{Endpoint, Rack, VIRTUAL_BROKER_BASE, virtual_broker_id};
pub use error_code::ErrorCode;
pub use ids::{LogId, LogPosition, Offset, ProxyId, TimestampMs, TopicId, TopicPartition, WalSegmentId};
