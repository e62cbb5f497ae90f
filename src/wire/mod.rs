//! Kafka's wire format: bytes in, values out. Everything that a peer sent is hostile until it is checked here.
//!
//! - Control-plane messages are decoded with `kafka-protocol`, but only after `schema` has walked the whole
//!   body: that crate allocates what a length field says, and an allocation failure cannot be caught.
//! - The hot paths (Produce, Fetch) have readers and encoders of their own that never copy record bytes.
//! - [`api_versions`] says which versions we speak and who answers what.
//!
//! Never does I/O, never looks inside a record batch, never decides what a request's answer is.

pub mod api_versions;
mod codec;
mod error;
pub mod fetch_request;
pub mod fetch_response;
pub mod frame;
pub mod produce_request;
pub mod produce_response;
pub mod produce_skim;
mod reader;
mod schema;
mod schemas;
mod writer;

pub use codec::{decode_request, decode_response, decode_response_frame, encode_request, encode_response};
pub use error::WireError;
/// A string that is a slice of the frame it came in. Copy it before keeping it: it pins the whole frame.
pub use kafka_protocol::protocol::StrBytes;

use crate::types::TopicId;

/// How a request names a topic: older versions by name, newer by id.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum TopicRef {
    Name(StrBytes),
    Id(TopicId),
}
