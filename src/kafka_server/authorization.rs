//! What upstream lets a client do with a topic, asked on the client's own connection and remembered briefly (KIP-430).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::{MetadataRequest, TopicName};

use super::session::{CallError, Session};
use crate::config::Authorization;
use crate::types::{ErrorCode, TopicId};
use crate::wire::StrBytes;

/// An operation on a topic; the value is its bit in the authorized operations (`AclOperation`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(super) enum Operation {
    Read = 1 << 3,
    Write = 1 << 4,
    Delete = 1 << 6,
    Describe = 1 << 8,
}

/// What upstream said of one topic.
#[derive(Clone, Copy)]
struct Grant {
    operations: i32,
    /// Zero where upstream gives no ids.
    topic_id: TopicId,
    /// The broker says that there is no such topic: it was deleted, or the broker has not heard of it yet.
    is_absent: bool,
    since: Instant,
}

/// The rights of one client connection that were asked for lately.
pub(super) struct Grants {
    by_topic: HashMap<String, Grant>,
    lifetime: Duration,
}

/// What upstream says where it was not asked for rights, or has no authorizer.
const NOT_GIVEN: i32 = i32::MIN;
const NOTHING: i32 = 0;
/// Topics whose rights are kept from one request to the next.
const MOST_REMEMBERED: usize = 10_000;
/// Kafka's `Topic.MAX_NAME_LENGTH`.
const LONGEST_NAME: usize = 249;

impl Grants {
    pub(super) fn new(lifetime: Duration) -> Self {
        Self { by_topic: HashMap::new(), lifetime }
    }

    fn is_fresh(&self, topic: &str, now: Instant) -> bool {
        let grant = self.by_topic.get(topic);
        grant.is_some_and(|grant| !grant.is_absent && now.duration_since(grant.since) < self.lifetime)
    }
}

impl Grant {
    fn of(found: Option<&MetadataResponseTopic>, now: Instant) -> Self {
        let nothing = Self { operations: NOTHING, topic_id: TopicId::ZERO, is_absent: false, since: now };
        let Some(topic) = found.filter(|t| t.error_code != ErrorCode::TopicAuthorizationFailed.code()) else {
            return nothing;
        };
        let operations = topic.topic_authorized_operations;
        Self {
            operations: if operations == NOT_GIVEN { NOTHING } else { operations },
            topic_id: topic.topic_id.into(),
            is_absent: topic.error_code == ErrorCode::UnknownTopicOrPartition.code(),
            since: now,
        }
    }

    fn check(&self, operation: Operation, id: Option<TopicId>) -> Result<(), ErrorCode> {
        let is_another = id.is_some_and(|id| !self.topic_id.is_zero() && self.topic_id != id);
        if id.is_some() && (self.is_absent || is_another) {
            // Retriable: the client looks again, and finds what there is now.
            return Err(ErrorCode::UnknownTopicOrPartition);
        }
        if self.operations & operation as i32 == 0 {
            return Err(ErrorCode::TopicAuthorizationFailed);
        }
        Ok(())
    }

    fn not_led_here(&self, operation: Operation) -> ErrorCode {
        if self.is_absent {
            // Upstream says so only to those who may know.
            return ErrorCode::UnknownTopicOrPartition;
        }
        self.check(operation, None).err().unwrap_or(ErrorCode::NotLeaderOrFollower)
    }
}

impl Session {
    /// Makes sure that `may` knows these topics. An error means that upstream could not be asked.
    pub(super) async fn learn_rights<'a>(
        &mut self,
        client_id: &str,
        topics: impl Iterator<Item = &'a str>,
    ) -> Result<(), CallError> {
        if self.proxy.config.diskless.authorization == Authorization::None {
            return Ok(());
        }
        let now = Instant::now();
        if self.grants.by_topic.len() >= MOST_REMEMBERED {
            self.grants.by_topic.clear();
        }
        let mut unknown: Vec<&str> =
            topics.filter(|t| t.len() <= LONGEST_NAME && !self.grants.is_fresh(t, now)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        if unknown.is_empty() {
            return Ok(());
        }
        let version = self.version_of::<MetadataRequest>(12)?;
        let request = rights_request(&unknown);
        let response = self.call(version, client_id, &request).await?;
        let answered: HashMap<&str, &MetadataResponseTopic> =
            response.topics.iter().filter_map(|t| Some((t.name.as_ref()?.as_str(), t))).collect();
        for name in unknown {
            self.grants.by_topic.insert(name.to_owned(), Grant::of(answered.get(name).copied(), now));
        }
        Ok(())
    }

    /// Whether the client may do this with the topic. Denied on doubt: also what was not asked for with
    /// [`Session::learn_rights`], and what upstream has deleted or created again since it was registered here.
    pub(super) fn may(&self, operation: Operation, topic: &str, id: Option<TopicId>) -> Result<(), ErrorCode> {
        if self.proxy.config.diskless.authorization == Authorization::None {
            return Ok(());
        }
        // The bits were fresh when the request began; they do not go stale in the middle of it.
        let Some(grant) = self.grants.by_topic.get(topic) else {
            return Err(ErrorCode::TopicAuthorizationFailed);
        };
        grant.check(operation, id)
    }

    /// What a broker says of a topic that it does not lead, here one that is not diskless: that there is none, that the
    /// client may not know, or that another broker is to be asked.
    pub(super) fn not_led_here(&self, operation: Operation, topic: &str) -> ErrorCode {
        if self.proxy.catalog.is_metadata_topic(topic) {
            return ErrorCode::TopicAuthorizationFailed;
        }
        if self.proxy.config.diskless.authorization == Authorization::None {
            return ErrorCode::NotLeaderOrFollower;
        }
        self.grants
            .by_topic
            .get(topic)
            .map_or(ErrorCode::TopicAuthorizationFailed, |grant| grant.not_led_here(operation))
    }
}

fn rights_request(topics: &[&str]) -> MetadataRequest {
    let named = |name: &&str| {
        let name = TopicName::from(StrBytes::from_string((*name).to_owned()));
        MetadataRequestTopic::default().with_name(Some(name))
    };
    MetadataRequest::default()
        .with_topics(Some(topics.iter().map(named).collect()))
        .with_allow_auto_topic_creation(false)
        .with_include_topic_authorized_operations(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TopicId = TopicId([1; 16]);
    const ANOTHER: TopicId = TopicId([2; 16]);

    fn grant(error_code: i16, operations: i32, id: TopicId) -> Grant {
        let topic = MetadataResponseTopic::default()
            .with_error_code(error_code)
            .with_topic_id(id.into())
            .with_topic_authorized_operations(operations);
        Grant::of(Some(&topic), Instant::now())
    }

    #[test]
    fn rights_are_those_that_upstream_gives() {
        let writer = grant(0, 272, ID);
        assert_eq!(writer.check(Operation::Write, Some(ID)), Ok(()));
        assert_eq!(writer.check(Operation::Describe, Some(ID)), Ok(()));
        assert_eq!(writer.check(Operation::Read, Some(ID)), Err(ErrorCode::TopicAuthorizationFailed));
    }

    #[test]
    fn doubt_denies() {
        for doubtful in [grant(29, NOT_GIVEN, TopicId::ZERO), grant(0, NOT_GIVEN, ID), Grant::of(None, Instant::now())]
        {
            assert_eq!(doubtful.check(Operation::Read, Some(ID)), Err(ErrorCode::TopicAuthorizationFailed));
        }
    }

    #[test]
    fn a_topic_of_another_broker_is_not_led_here() {
        for (grant, expected) in [
            (grant(0, 272, ID), ErrorCode::NotLeaderOrFollower),
            (grant(0, 8, ID), ErrorCode::TopicAuthorizationFailed),
            (grant(29, NOT_GIVEN, TopicId::ZERO), ErrorCode::TopicAuthorizationFailed),
            (grant(3, NOT_GIVEN, TopicId::ZERO), ErrorCode::UnknownTopicOrPartition),
            (Grant::of(None, Instant::now()), ErrorCode::TopicAuthorizationFailed),
        ] {
            assert_eq!(grant.not_led_here(Operation::Write), expected);
        }
    }

    /// Records for a topic that was deleted and created again past the proxy were acknowledged into the old one.
    #[test]
    fn a_topic_that_is_gone_or_another_one_is_not_this_topic() {
        for gone in [grant(3, 272, TopicId::ZERO), grant(0, 272, ANOTHER)] {
            assert_eq!(gone.check(Operation::Write, Some(ID)), Err(ErrorCode::UnknownTopicOrPartition));
        }
        // An upstream without ids can tell nothing.
        assert_eq!(grant(0, 272, TopicId::ZERO).check(Operation::Write, Some(ID)), Ok(()));
    }
}
