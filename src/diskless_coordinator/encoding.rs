//! The bytes of one metadata log record.
//!
//! ```text
//! 0      magic 0xD1
//! 1      format version, 1
//! 2      flags; bit 0: who does not know this type or version must stop
//! 3      type of the command
//! 4..8   CRC-32C of bytes 0..4 and 8.., little endian
//! 8..    the proposer and the command, in postcard
//! ```
//!
//! A record without the magic byte was not written by a proxy (someone produced to the topic by hand): every proxy
//! skips it alike. Whatever else cannot be read stops the proxy: to skip it would make proxies disagree.

use crc_fast::{CrcAlgorithm, Digest};

use super::command::{Command, Proposal, Proposer};
use crate::types::{LogPosition, TimestampMs};

/// The version written by this build, and the only one it reads.
pub const FORMAT_VERSION: u8 = 1;

const MAGIC: u8 = 0xD1;
const MUST_UNDERSTAND: u8 = 1;
const HEADER: usize = 8;

/// One record of the metadata log, as it came from there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogRecord {
    pub position: LogPosition,
    /// The time at which the log took it.
    pub append_time_ms: TimestampMs,
    pub bytes: bytes::Bytes,
}

/// What a record says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decoded {
    Proposal(Proposal),
    /// Nothing for us: not written by a proxy, or of a newer type that may be passed over.
    Skipped,
}

/// The record cannot be understood and must not be skipped.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("format version {0} is newer than this build reads ({FORMAT_VERSION}): upgrade this proxy")]
    Version(u8),
    #[error("command type {0} is not known to this build: upgrade this proxy")]
    Type(u8),
    #[error("the record's checksum does not match its bytes")]
    Checksum,
    #[error("the record's body cannot be read: {0}")]
    Body(postcard::Error),
}

/// The type byte; it equals the place of the variant in [`Command`].
fn type_of(command: &Command) -> u8 {
    match command {
        Command::Genesis { .. } => 0,
        Command::Open { .. } => 1,
        Command::Heartbeat => 2,
        Command::Close => 3,
        Command::Barrier => 4,
        Command::CommitSegment(_) => 5,
        Command::PendingTopic { .. } => 6,
        Command::PendingTopicDropped { .. } => 7,
        Command::RegisterTopic { .. } => 8,
        Command::TopicDeleted { .. } => 9,
        Command::PartitionsCreated { .. } => 10,
        Command::TopicConfigChanged { .. } => 11,
        Command::SetClusterVersion { .. } => 12,
    }
}

const LAST_TYPE: u8 = 12;

/// The record that proposes `command`.
pub fn encode(proposer: &Proposer, command: &Command) -> Vec<u8> {
    let header = vec![MAGIC, FORMAT_VERSION, MUST_UNDERSTAND, type_of(command), 0, 0, 0, 0];
    // A tuple has the bytes of the struct `Proposal`, and borrows.
    let mut record = postcard::to_extend(&(proposer, command), header)
        .expect("postcard fails only on sequences of unknown length, which no command has");
    let crc = checksum(&record).to_le_bytes();
    record[4..HEADER].copy_from_slice(&crc);
    record
}

/// Reads a record, or says why its reader must stop.
pub fn decode(record: &[u8]) -> Result<Decoded, DecodeError> {
    if record.len() < HEADER || record[0] != MAGIC {
        return Ok(Decoded::Skipped);
    }
    if record[4..HEADER] != checksum(record).to_le_bytes() {
        return Err(DecodeError::Checksum);
    }
    let must_understand = record[2] & MUST_UNDERSTAND != 0;
    let unknown = |error| if must_understand { Err(error) } else { Ok(Decoded::Skipped) };
    if record[1] != FORMAT_VERSION {
        return unknown(DecodeError::Version(record[1]));
    }
    if record[3] > LAST_TYPE {
        return unknown(DecodeError::Type(record[3]));
    }
    match postcard::take_from_bytes(&record[HEADER..]) {
        Ok((proposal, [])) => Ok(Decoded::Proposal(proposal)),
        Ok(_) => Err(DecodeError::Body(postcard::Error::SerdeDeCustom)),
        Err(error) => Err(DecodeError::Body(error)),
    }
}

fn checksum(record: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&record[..4]);
    digest.update(&record[HEADER..]);
    u32::try_from(digest.finalize()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
