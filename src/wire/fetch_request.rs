//! Reads a Fetch request body, versions 4 to 15, and sets its rack. Names are slices of the frame.
//!
//! Never judges the request: that is for whoever answers it.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::produce_request::{required, text};
use super::reader::Reader;
use super::writer::put_string;
use super::{StrBytes, TopicRef, WireError};
use crate::types::{Offset, TopicId};

pub const API_KEY: i16 = 1;
pub const FIRST_VERSION: i16 = 4;
/// Version 16 brings broker addresses into the answer.
pub const LAST_VERSION: i16 = 15;
/// The first version with compact lengths and tagged fields.
const FLEXIBLE_VERSION: i16 = 12;
/// The first version that names topics by id.
const TOPIC_ID_VERSION: i16 = 13;
/// The first version with a rack id.
const RACK_VERSION: i16 = 11;
/// Partitions in one request, against frames that are nothing but counts.
const MAX_PARTITIONS: usize = 200_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchRequest {
    /// -1 for consumers. 0 and above claims to be a follower.
    pub replica_id: i32,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    /// 0: read_uncommitted, 1: read_committed.
    pub isolation_level: i8,
    pub session_id: i32,
    /// 0 opens a session, -1 is sessionless.
    pub session_epoch: i32,
    pub topics: Vec<FetchTopic>,
    pub forgotten: Vec<ForgottenTopic>,
    pub rack_id: StrBytes,
    /// The rack id with its length, in the body.
    pub(crate) rack_at: Option<Range<usize>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchTopic {
    pub topic: TopicRef,
    pub partitions: Vec<FetchPartition>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchPartition {
    pub partition: i32,
    /// -1 where the client does not say.
    pub current_leader_epoch: i32,
    pub fetch_offset: Offset,
    /// Said by followers only, -1 from consumers.
    pub log_start_offset: Offset,
    pub partition_max_bytes: i32,
}

/// Partitions that leave a fetch session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForgottenTopic {
    pub topic: TopicRef,
    pub partitions: Vec<i32>,
}

/// Whether a version has compact lengths and tagged fields.
pub(super) fn is_flexible(version: i16) -> bool {
    version >= FLEXIBLE_VERSION
}

/// Whether a version names topics by id.
pub fn has_topic_ids(version: i16) -> bool {
    version >= TOPIC_ID_VERSION
}

/// The body with this rack id, where the client gave none and the version has one (KIP-392).
pub fn with_rack(body: &Bytes, version: i16, rack: &str) -> Option<Bytes> {
    FetchRequest::read(version, body).ok()?.with_rack(body, version, rack)
}

impl FetchRequest {
    /// Reads a body that must be exactly one request.
    pub fn read(version: i16, body: &Bytes) -> Result<Self, WireError> {
        if !(FIRST_VERSION..=LAST_VERSION).contains(&version) {
            return Err(WireError::UnsupportedVersion { api_key: API_KEY, version });
        }
        let reader = Reader::new(body);
        let mut read = Read { body, reader, version, flexible: is_flexible(version), partitions: 0 };
        let request = read.request()?;
        read.reader.finish()?;
        Ok(request)
    }

    /// As the function of the same name, for the body that this request was read from.
    pub fn with_rack(&self, body: &[u8], version: i16, rack: &str) -> Option<Bytes> {
        let at = self.rack_at.clone().filter(|_| self.rack_id.is_empty())?;
        let mut changed = BytesMut::with_capacity(body.len() + rack.len() + 2);
        changed.extend_from_slice(body.get(..at.start)?);
        put_string(&mut changed, is_flexible(version), rack);
        changed.extend_from_slice(body.get(at.end..)?);
        Some(changed.freeze())
    }
}

struct Read<'a> {
    body: &'a Bytes,
    reader: Reader<'a>,
    version: i16,
    flexible: bool,
    partitions: usize,
}

impl Read<'_> {
    fn request(&mut self) -> Result<FetchRequest, WireError> {
        let replica_id = if self.version <= 14 { self.reader.int32("ReplicaId")? } else { -1 };
        let mut request = FetchRequest {
            replica_id,
            max_wait_ms: self.reader.int32("MaxWaitMs")?,
            min_bytes: self.reader.int32("MinBytes")?,
            max_bytes: self.reader.int32("MaxBytes")?,
            isolation_level: self.reader.int8("IsolationLevel")?,
            session_id: if self.version >= 7 { self.reader.int32("SessionId")? } else { 0 },
            session_epoch: if self.version >= 7 { self.reader.int32("SessionEpoch")? } else { -1 },
            topics: self.topics()?,
            forgotten: if self.version >= 7 { self.forgotten()? } else { Vec::new() },
            rack_id: StrBytes::new(),
            rack_at: None,
        };
        if self.version >= RACK_VERSION {
            let start = self.reader.position();
            let rack = self.reader.string("RackId", self.flexible)?;
            request.rack_at = Some(start..rack.end);
            request.rack_id = text(self.body, "RackId", rack)?;
        }
        if self.flexible {
            self.request_tags(&mut request)?;
        }
        Ok(request)
    }

    /// Tag 0 is the cluster id, of no interest; tag 1 is ReplicaState, which holds the replica id since version 15.
    fn request_tags(&mut self, request: &mut FetchRequest) -> Result<(), WireError> {
        let version = self.version;
        self.reader.tagged_fields(|tag, reader| {
            if tag == 1 && version >= 15 {
                request.replica_id = reader.int32("ReplicaId")?;
            }
            Ok(())
        })
    }

    fn topics(&mut self) -> Result<Vec<FetchTopic>, WireError> {
        let count = self.topic_count("Topics")?;
        let mut topics = Vec::with_capacity(count);
        for _ in 0..count {
            let topic = self.topic()?;
            let smallest = self.smallest_partition();
            let count = required("Partitions", self.reader.count("Partitions", self.flexible, smallest)?)?;
            self.spend(count)?;
            let mut partitions = Vec::with_capacity(count);
            for _ in 0..count {
                partitions.push(self.partition()?);
            }
            self.end_structure()?;
            topics.push(FetchTopic { topic, partitions });
        }
        Ok(topics)
    }

    fn partition(&mut self) -> Result<FetchPartition, WireError> {
        let partition = self.reader.int32("Partition")?;
        let current_leader_epoch = if self.version >= 9 { self.reader.int32("CurrentLeaderEpoch")? } else { -1 };
        let fetch_offset = self.reader.int64("FetchOffset")?;
        if self.version >= 12 {
            // Said by followers only.
            self.reader.int32("LastFetchedEpoch")?;
        }
        let log_start_offset = if self.version >= 5 { self.reader.int64("LogStartOffset")? } else { -1 };
        let partition_max_bytes = self.reader.int32("PartitionMaxBytes")?;
        self.end_structure()?;
        Ok(FetchPartition { partition, current_leader_epoch, fetch_offset, log_start_offset, partition_max_bytes })
    }

    fn forgotten(&mut self) -> Result<Vec<ForgottenTopic>, WireError> {
        let count = self.topic_count("ForgottenTopicsData")?;
        let mut forgotten = Vec::with_capacity(count);
        for _ in 0..count {
            let topic = self.topic()?;
            let count = required("Partitions", self.reader.count("Partitions", self.flexible, 4)?)?;
            self.spend(count)?;
            let mut partitions = Vec::with_capacity(count);
            for _ in 0..count {
                partitions.push(self.reader.int32("Partitions")?);
            }
            self.end_structure()?;
            forgotten.push(ForgottenTopic { topic, partitions });
        }
        Ok(forgotten)
    }

    fn topic(&mut self) -> Result<TopicRef, WireError> {
        if has_topic_ids(self.version) {
            return Ok(TopicRef::Id(TopicId(self.reader.uuid("TopicId")?)));
        }
        let name = self.reader.string("Topic", self.flexible)?;
        Ok(TopicRef::Name(text(self.body, "Topic", name)?))
    }

    fn topic_count(&mut self, field: &'static str) -> Result<usize, WireError> {
        // The smallest topic: an id or an empty name, and no partitions.
        let smallest = match (has_topic_ids(self.version), self.flexible) {
            (true, _) => 16 + 1 + 1,
            (false, true) => 1 + 1 + 1,
            (false, false) => 2 + 4,
        };
        let count = required(field, self.reader.count(field, self.flexible, smallest)?)?;
        self.spend(count)?;
        Ok(count)
    }

    fn smallest_partition(&self) -> usize {
        let log_start = if self.version >= 5 { 8 } else { 0 };
        let leader_epoch = if self.version >= 9 { 4 } else { 0 };
        let last_epoch_and_tags = if self.flexible { 4 + 1 } else { 0 };
        4 + 8 + 4 + log_start + leader_epoch + last_epoch_and_tags
    }

    fn spend(&mut self, count: usize) -> Result<(), WireError> {
        self.partitions += count;
        if self.partitions > MAX_PARTITIONS {
            return Err(WireError::TooManyElements { limit: MAX_PARTITIONS });
        }
        Ok(())
    }

    fn end_structure(&mut self) -> Result<(), WireError> {
        if self.flexible { self.reader.skip_tagged_fields() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
