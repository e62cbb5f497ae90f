//! Identifiers and positions. Each is a type of its own, so that one cannot be passed for another.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// An offset in a partition.
pub type Offset = i64;

/// Milliseconds since the Unix epoch, as Kafka stamps records.
pub type TimestampMs = i64;

/// Kafka's id of a topic; a topic that is deleted and created again has another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// What Kafka answers where it knows no id.
    pub const ZERO: Self = Self([0; 16]);

    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }
}

impl fmt::Display for TopicId {
    /// URL-safe base64 without padding, as Kafka's own tools print it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<uuid::Uuid> for TopicId {
    fn from(id: uuid::Uuid) -> Self {
        Self(*id.as_bytes())
    }
}

impl From<TopicId> for uuid::Uuid {
    fn from(id: TopicId) -> Self {
        Self::from_bytes(id.0)
    }
}

/// The random id of one metadata log. Every object key starts with it, so that two logs can share a bucket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LogId(pub [u8; 16]);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for LogId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a log id: 32 hexadecimal digits are expected");
        if text.len() != 32 || !text.is_ascii() {
            return Err(bad());
        }
        let mut id = [0; 16];
        for (byte, digits) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| bad())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| bad())?;
        }
        Ok(Self(id))
    }
}

/// The configured id of a proxy, unique among the proxies of one metadata log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ProxyId(pub u32);

impl fmt::Display for ProxyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The offset of a record in the metadata log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LogPosition(pub i64);

impl LogPosition {
    /// Before the first record.
    pub const NONE: Self = Self(-1);

    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One partition of one incarnation of a topic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct TopicPartition {
    pub topic_id: TopicId,
    pub partition: i32,
}

/// Names one WAL segment for ever: the log position its proxy had applied when the first byte came, the
/// epoch of that proxy's incarnation, and a counter within the incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct WalSegmentId {
    pub birth: LogPosition,
    pub epoch: LogPosition,
    pub sequence: u32,
}

impl fmt::Display for WalSegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}-{:08x}", self.birth.0, self.epoch.0, self.sequence)
    }
}

impl FromStr for WalSegmentId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a WAL segment id: BIRTH-EPOCH-SEQUENCE in hexadecimal is expected");
        let mut parts = text.split('-');
        let mut part = |width: usize| {
            let digits = parts.next().filter(|p| p.len() == width).ok_or_else(bad)?;
            i64::from_str_radix(digits, 16).map_err(|_| bad())
        };
        let id = Self {
            birth: LogPosition(part(16)?),
            epoch: LogPosition(part(16)?),
            sequence: u32::try_from(part(8)?).map_err(|_| bad())?,
        };
        parts.next().is_none().then_some(id).ok_or_else(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_ids_print_as_kafka_prints_them() {
        assert_eq!(TopicId::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(TopicId([0xff; 16]).to_string(), "_____________________w");
    }

    #[test]
    fn segment_ids_read_back_and_sort_by_birth() {
        let id = WalSegmentId { birth: LogPosition(77), epoch: LogPosition(5), sequence: 3 };
        assert_eq!(id.to_string(), "000000000000004d-0000000000000005-00000003");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("00-00-00".parse::<WalSegmentId>().is_err());
        assert!((id.to_string() + "-0").parse::<WalSegmentId>().is_err());
    }

    #[test]
    fn log_ids_read_back() {
        let id = LogId([0xab; 16]);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("xyz".parse::<LogId>().is_err());
    }
}
