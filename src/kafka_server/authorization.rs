//! What upstream lets a client do with a topic, asked on the client's own connection and remembered briefly (KIP-430).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{MetadataRequest, TopicName};

use super::session::{CallError, Session};
use crate::config::Authorization;
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

/// The rights of one client connection that were asked for lately.
pub(super) struct Grants {
    by_topic: HashMap<String, (i32, Instant)>,
    lifetime: Duration,
}

/// What upstream says where it was not asked for rights, or has no authorizer.
const NOT_GIVEN: i32 = i32::MIN;
const NOTHING: i32 = 0;
const MOST_REMEMBERED: usize = 10_000;

impl Grants {
    pub(super) fn new(lifetime: Duration) -> Self {
        Self { by_topic: HashMap::new(), lifetime }
    }

    fn known(&self, topic: &str, now: Instant) -> Option<i32> {
        let (bits, since) = self.by_topic.get(topic)?;
        (now.duration_since(*since) < self.lifetime).then_some(*bits)
    }

    fn remember(&mut self, topic: String, bits: i32, now: Instant) {
        if self.by_topic.len() >= MOST_REMEMBERED {
            self.by_topic.clear();
        }
        self.by_topic.insert(topic, (bits, now));
    }
}

impl Session {
    /// Makes sure that `is_allowed` knows these topics. An error means that upstream could not be asked.
    pub(super) async fn learn_rights<'a>(
        &mut self,
        client_id: &str,
        topics: impl Iterator<Item = &'a str>,
    ) -> Result<(), CallError> {
        if self.proxy.config.diskless.authorization == Authorization::None {
            return Ok(());
        }
        let now = Instant::now();
        let mut unknown: Vec<&str> = topics.filter(|t| self.grants.known(t, now).is_none()).collect();
        unknown.sort_unstable();
        unknown.dedup();
        if unknown.is_empty() {
            return Ok(());
        }
        let version = self.version_of::<MetadataRequest>(12)?;
        let request = rights_request(&unknown);
        let response = self.call(version, client_id, &request).await?;
        for name in unknown {
            let found = response.topics.iter().find(|t| t.name.as_ref().is_some_and(|n| n.as_str() == name));
            let bits = match found {
                Some(topic) if topic.error_code != 29 && topic.topic_authorized_operations != NOT_GIVEN => {
                    topic.topic_authorized_operations
                }
                _ => NOTHING,
            };
            self.grants.remember(name.to_owned(), bits, now);
        }
        Ok(())
    }

    /// Denied on doubt. Topics that were not asked for with [`Session::learn_rights`] are denied.
    pub(super) fn is_allowed(&self, topic: &str, operation: Operation) -> bool {
        if self.proxy.config.diskless.authorization == Authorization::None {
            return true;
        }
        // The bits were fresh when the request began; they do not go stale in the middle of it.
        self.grants.by_topic.get(topic).is_some_and(|(bits, _)| bits & operation as i32 != 0)
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
