//! What can be wrong with bytes from a peer. Carries no bytes of the message, so it is safe to log.

/// A message is not what its version's schema says, or is more than this proxy is willing to hold.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    #[error("the message ends inside {field}")]
    Truncated { field: &'static str },
    #[error("{field} has the impossible length {length}")]
    BadLength { field: &'static str, length: i64 },
    #[error("{field} claims {count} elements, but only {remaining} bytes follow")]
    BadCount { field: &'static str, count: usize, remaining: usize },
    #[error("a tagged field has the tag {tag}, and none is above 2147483647")]
    BadTag { tag: u32 },
    #[error("{field} is null, which this version does not allow")]
    Null { field: &'static str },
    #[error("{field} is not UTF-8")]
    NotUtf8 { field: &'static str },
    #[error("the message holds more than {limit} elements")]
    TooManyElements { limit: usize },
    #[error("{count} bytes are left over after the message")]
    TrailingBytes { count: usize },
    #[error("API key {api_key} is not spoken here in version {version}")]
    UnsupportedVersion { api_key: i16, version: i16 },
    #[error("API key {api_key} does not decode: {reason}")]
    Undecodable { api_key: i16, reason: String },
    #[error("API key {api_key} does not encode in version {version}: {reason}")]
    Unencodable { api_key: i16, version: i16, reason: String },
}
