//! How a topic becomes diskless (R5): its name is announced in the log, upstream creates it empty, and it is registered
//! under the id that upstream gave.

use std::time::Duration;

use kafka_protocol::messages::create_topics_request::CreatableTopic;

use super::config::{DISKLESS_ENABLE, Refusal, check_setting, parse_enable};
use super::{TopicCatalog, shadow};
use crate::coordination::SubmitError;
use crate::diskless_coordinator::command::{Command, TopicConfig};
use crate::diskless_coordinator::outcome::{self, Outcome};
use crate::types::{ErrorCode, TopicId};

/// What is asked of one topic in a CreateTopics request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    Classic,
    Diskless,
    Refuse(Refusal),
}

/// Decides about one topic and strips from it what upstream does not know.
pub fn plan(topic: &mut CreatableTopic, matches_pattern: bool) -> Plan {
    let mut diskless = matches_pattern;
    let mut refusal = None;
    topic.configs.retain(|config| {
        if config.name.as_str() != DISKLESS_ENABLE {
            return true;
        }
        match parse_enable(config.value.as_deref()) {
            Ok(enable) => diskless = enable,
            Err(refused) => refusal = Some(refused),
        }
        false
    });
    if let Some(refused) = refusal {
        return Plan::Refuse(refused);
    }
    if !diskless {
        return Plan::Classic;
    }
    let bad = topic.configs.iter().find_map(|c| check_setting(&c.name, c.value.as_deref()).err());
    bad.map_or(Plan::Diskless, Plan::Refuse)
}

/// A topic that upstream has created for us.
#[derive(Clone, Debug)]
pub struct Created {
    pub name: String,
    pub id: TopicId,
    pub partitions: i32,
    pub config: TopicConfig,
}

/// Kafka elects leaders of a new topic within moments.
const SHADOW_CHECK_DEADLINE: Duration = Duration::from_secs(15);
const SHADOW_CHECK_PAUSE: Duration = Duration::from_millis(50);

impl TopicCatalog {
    /// Announces that a topic of this name is being created. Nothing may go upstream before this succeeded.
    pub async fn announce(&self, name: &str) -> Result<(), Refusal> {
        self.propose(Command::PendingTopic { name: name.to_owned() }).await
    }

    /// The topic was not created after all.
    pub async fn withdraw(&self, name: &str) {
        // If this is lost, the announcement expires by itself.
        let _ = self.propose(Command::PendingTopicDropped { name: name.to_owned() }).await;
    }

    /// Makes a topic diskless that upstream has just created for us, and waits until it is so here.
    pub async fn register(&self, created: &mut Created) -> Result<(), Refusal> {
        if created.partitions <= 0 {
            // Upstream tells a creator without DESCRIBE_CONFIGS neither partitions nor settings (KIP-525).
            created.partitions = self.partitions_of(created).await?;
        }
        self.check_shadow_is_empty(created).await?;
        let command = Command::RegisterTopic {
            name: created.name.clone(),
            topic_id: created.id,
            partitions: created.partitions,
            leader_epoch: 0,
            config: created.config.clone(),
        };
        self.propose(command).await?;
        self.refresh_configs(std::slice::from_ref(&created.name)).await;
        Ok(())
    }

    async fn partitions_of(&self, created: &Created) -> Result<i32, Refusal> {
        let refusal = |reason: String| Refusal {
            code: ErrorCode::RequestTimedOut,
            message: format!("topic {:?} was created, but its partitions could not be counted: {reason}", created.name),
        };
        let deadline = tokio::time::Instant::now() + SHADOW_CHECK_DEADLINE;
        loop {
            let found = shadow::topic(&self.cluster, &created.name).await;
            let reason = match found {
                Ok(Some(topic)) if topic.id == created.id && topic.partitions > 0 => {
                    return i32::try_from(topic.partitions).map_err(|_| refusal("there are too many".to_owned()));
                }
                Ok(_) => "the brokers do not know it yet".to_owned(),
                Err(error) => error.to_string(),
            };
            if tokio::time::Instant::now() >= deadline {
                return Err(refusal(reason));
            }
            tokio::time::sleep(SHADOW_CHECK_PAUSE).await;
        }
    }

    /// A topic that already has records in upstream would lose them from sight.
    async fn check_shadow_is_empty(&self, created: &Created) -> Result<(), Refusal> {
        let deadline = tokio::time::Instant::now() + SHADOW_CHECK_DEADLINE;
        loop {
            let partitions = usize::try_from(created.partitions).unwrap_or(0);
            match shadow::log_ends(&self.cluster, &created.name, partitions).await {
                Ok(ends) if ends.iter().all(|end| *end == 0) => return Ok(()),
                Ok(_) => {
                    return Err(Refusal {
                        code: ErrorCode::InvalidRequest,
                        message: format!(
                            "topic {:?} was created, but somebody wrote to it past the proxy at once, so it stays classic: delete it and create it again",
                            created.name
                        ),
                    });
                }
                Err(error) if tokio::time::Instant::now() >= deadline => {
                    return Err(Refusal {
                        code: ErrorCode::RequestTimedOut,
                        message: format!(
                            "topic {:?} was created, but its leaders did not answer: {error}",
                            created.name
                        ),
                    });
                }
                Err(_) => tokio::time::sleep(SHADOW_CHECK_PAUSE).await,
            }
        }
    }

    /// Upstream has deleted the topic: its data is out of reach from here on.
    pub async fn deleted(&self, topic_id: TopicId) -> Result<(), Refusal> {
        self.propose(Command::TopicDeleted { topic_id }).await
    }

    pub async fn partitions_created(&self, topic_id: TopicId, partitions: i32) -> Result<(), Refusal> {
        self.propose(Command::PartitionsCreated { topic_id, partitions }).await
    }

    async fn propose(&self, command: Command) -> Result<(), Refusal> {
        match self.coordination.submit(command).await {
            Ok(Outcome::Refused(reason)) => Err(refusal(&reason)),
            Ok(_) => Ok(()),
            Err(error) => Err(not_decided(&error)),
        }
    }
}

fn refusal(reason: &outcome::Refusal) -> Refusal {
    let code = match reason {
        outcome::Refusal::TopicExists => ErrorCode::TopicAlreadyExists,
        outcome::Refusal::UnknownTopic => ErrorCode::UnknownTopicOrPartition,
        outcome::Refusal::Invalid(_) => ErrorCode::InvalidRequest,
        // Somebody else has done the same: what was asked for stands.
        _ => ErrorCode::RequestTimedOut,
    };
    Refusal { code, message: format!("the metadata log refused the change: {reason}") }
}

fn not_decided(error: &SubmitError) -> Refusal {
    Refusal {
        code: ErrorCode::RequestTimedOut,
        message: format!("the metadata log has not confirmed the change: {error}; try again"),
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::create_topics_request::CreatableTopicConfig;

    use super::*;
    use crate::wire::StrBytes;

    fn topic(configs: &[(&str, &str)]) -> CreatableTopic {
        let text = |s: &str| StrBytes::from_string(s.to_owned());
        let entry = |(name, value): &(&str, &str)| {
            CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
        };
        CreatableTopic::default().with_configs(configs.iter().map(entry).collect())
    }

    #[test]
    fn the_flag_decides_and_is_stripped() {
        let mut asked = topic(&[("diskless.enable", "true"), ("retention.ms", "1000")]);
        assert_eq!(plan(&mut asked, false), Plan::Diskless);
        assert_eq!(asked.configs.len(), 1);
        assert_eq!(plan(&mut topic(&[("diskless.enable", "false")]), true), Plan::Classic);
        assert_eq!(plan(&mut topic(&[]), true), Plan::Diskless);
        assert_eq!(plan(&mut topic(&[("cleanup.policy", "compact")]), false), Plan::Classic);
        assert!(matches!(plan(&mut topic(&[("cleanup.policy", "compact")]), true), Plan::Refuse(_)));
    }

    #[test]
    fn what_cannot_be_diskless_is_refused() {
        for configs in [
            &[("diskless.enable", "maybe")][..],
            &[("diskless.enable", "true"), ("cleanup.policy", "compact")],
            &[("diskless.enable", "true"), ("max.message.bytes", "10")],
        ] {
            assert!(matches!(plan(&mut topic(configs), false), Plan::Refuse(_)), "{configs:?}");
        }
    }
}
