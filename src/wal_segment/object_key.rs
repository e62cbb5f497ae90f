//! Where a segment lies in the bucket: `<log id>/wal/<segment id>`. Made of ids and log positions only, so a key is
//! never used twice, and two logs can share a bucket (R1).

use crate::types::{LogId, WalSegmentId};

const WAL: &str = "wal";

/// A key that is not that of a segment.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is not the key of a WAL segment")]
pub struct BadObjectKey(String);

pub fn object_key(log_id: LogId, segment: WalSegmentId) -> String {
    format!("{log_id}/{WAL}/{segment}")
}

/// Everything that belongs to one log.
pub fn log_prefix(log_id: LogId) -> String {
    log_id.to_string()
}

/// The segments of one log.
pub fn wal_prefix(log_id: LogId) -> String {
    format!("{log_id}/{WAL}")
}

pub fn parse_object_key(key: &str) -> Result<(LogId, WalSegmentId), BadObjectKey> {
    let bad = || BadObjectKey(key.to_owned());
    let mut parts = key.split('/');
    let (Some(log_id), Some(WAL), Some(segment), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(bad());
    };
    let log_id: LogId = log_id.parse().map_err(|_| bad())?;
    let segment: WalSegmentId = segment.parse().map_err(|_| bad())?;
    // Numbers can be spelled in more than one way (signs, capitals); a key cannot.
    if object_key(log_id, segment) != key {
        return Err(bad());
    }
    Ok((log_id, segment))
}
