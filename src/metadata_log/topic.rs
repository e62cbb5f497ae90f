//! The topic of the metadata log: created when absent, and checked, since a wrong setting loses the log silently.
//!
//! What is checked is what the topic actually has, replicas too: Kafka clips `min.insync.replicas` to their number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::sync::oneshot;

use super::kafka::{KafkaLogSettings, MAX_RECORD_BYTES};

pub const DEFAULT_TOPIC: &str = "__diskless_metadata";
/// As Kafka Connect has it for its own topics.
pub const DEFAULT_REPLICATION_FACTOR: i32 = 3;

const TIMEOUT: Duration = Duration::from_secs(15);
/// A new topic is known to all brokers only after a while.
const ATTEMPTS: u32 = 30;
const ATTEMPT_EVERY: Duration = Duration::from_millis(200);

/// Why the topic could not be created or read.
#[derive(Debug, thiserror::Error)]
pub enum TopicError {
    #[error("the metadata topic {topic} could not be created: {reason}")]
    Create { topic: String, reason: String },
    #[error("the metadata topic {topic} could not be described: {reason}")]
    Describe { topic: String, reason: String },
}

/// The topic as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActualTopic {
    pub partitions: usize,
    /// Of the only partition.
    pub replicas: usize,
    pub configs: BTreeMap<String, String>,
}

/// Something about the topic that is not as it must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The log may lose records or stop; do not start. Otherwise a warning.
    pub fatal: bool,
    pub what: String,
    /// The command that fixes it.
    pub fix: String,
}

/// Creates the topic unless it exists, and says what it is like.
pub async fn ensure(settings: &KafkaLogSettings, replication_factor: i32) -> Result<ActualTopic, TopicError> {
    let create = |reason: String| TopicError::Create { topic: settings.topic.clone(), reason };
    let admin: AdminClient<DefaultClientContext> = settings.config().create().map_err(|e| create(e.to_string()))?;
    let wanted = wanted_configs(replication_factor);
    let mut topic = NewTopic::new(&settings.topic, 1, TopicReplication::Fixed(replication_factor));
    for (name, value) in &wanted {
        topic = topic.set(name, value);
    }
    let created = admin.create_topics([&topic], &options()).await.map_err(|e| create(e.to_string()))?;
    let refused = created.into_iter().find_map(Result::err).map(|(_, code)| code);
    match refused {
        None | Some(RDKafkaErrorCode::TopicAlreadyExists) => describe(settings).await,
        // It may exist although this user may not create it.
        Some(code) => describe(settings).await.map_err(|_| create(KafkaError::AdminOp(code).to_string())),
    }
}

/// Reads what the topic is like; never creates it.
pub async fn describe(settings: &KafkaLogSettings) -> Result<ActualTopic, TopicError> {
    let failed = |reason: String| TopicError::Describe { topic: settings.topic.clone(), reason };
    let admin: AdminClient<DefaultClientContext> = settings.config().create().map_err(|e| failed(e.to_string()))?;
    let admin = Arc::new(admin);
    let (partitions, replicas) = placement(Arc::clone(&admin), settings.topic.clone()).await.map_err(failed)?;
    let configs = configs(&admin, &settings.topic).await.map_err(failed)?;
    Ok(ActualTopic { partitions, replicas, configs })
}

/// A broker that has not yet heard of a new topic gives no settings at all, so it is asked again.
async fn configs(admin: &AdminClient<DefaultClientContext>, topic: &str) -> Result<BTreeMap<String, String>, String> {
    let mut failure = "the brokers give no settings".to_owned();
    for _ in 0..ATTEMPTS {
        let described = admin.describe_configs([&ResourceSpecifier::Topic(topic)], &options()).await;
        match described.map_err(|e| e.to_string())?.into_iter().next() {
            Some(Ok(resource)) if !resource.entries.is_empty() => {
                let entries = resource.entries.into_iter();
                return Ok(entries.filter_map(|entry| Some((entry.name, entry.value?))).collect());
            }
            Some(Err(code)) => failure = code.to_string(),
            Some(Ok(_)) | None => {}
        }
        tokio::time::sleep(ATTEMPT_EVERY).await;
    }
    Err(failure)
}

/// Asks for the topic's partitions until it has a leader. The query blocks, so it runs on a thread of its own.
async fn placement(admin: Arc<AdminClient<DefaultClientContext>>, topic: String) -> Result<(usize, usize), String> {
    let (reply, answer) = oneshot::channel();
    let ask = move || {
        let mut found = Err("it has no leader".to_owned());
        for _ in 0..ATTEMPTS {
            found = read_placement(&admin, &topic);
            if found.is_ok() || reply.is_closed() {
                break;
            }
            std::thread::sleep(ATTEMPT_EVERY);
        }
        let _ = reply.send(found);
    };
    std::thread::Builder::new().name("metadata-topic".to_owned()).spawn(ask).map_err(|e| e.to_string())?;
    answer.await.map_err(|_| "the query was given up".to_owned())?
}

fn read_placement(admin: &AdminClient<DefaultClientContext>, topic: &str) -> Result<(usize, usize), String> {
    let metadata = admin.inner().fetch_metadata(Some(topic), TIMEOUT).map_err(|e| e.to_string())?;
    let topic = metadata.topics().first().ok_or("the topic is unknown")?;
    let partition = topic.partitions().first().ok_or("the topic has no partitions yet")?;
    if partition.leader() < 0 {
        return Err("it has no leader".to_owned());
    }
    Ok((topic.partitions().len(), partition.replicas().len()))
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(TIMEOUT)).request_timeout(Some(TIMEOUT))
}

fn min_insync_replicas(replicas: usize) -> usize {
    if replicas > 1 { 2 } else { 1 }
}

fn wanted_configs(replication_factor: i32) -> Vec<(&'static str, String)> {
    let min_insync = min_insync_replicas(usize::try_from(replication_factor).unwrap_or(1));
    let mut wanted: Vec<(&'static str, String)> =
        FIXED_CONFIGS.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    wanted.push(("min.insync.replicas", min_insync.to_string()));
    wanted.push(("max.message.bytes", MAX_RECORD_BYTES.to_string()));
    wanted
}

/// Settings that have one right value.
const FIXED_CONFIGS: [(&str, &str); 5] = [
    ("cleanup.policy", "delete"),
    ("retention.ms", "-1"),
    ("retention.bytes", "-1"),
    ("message.timestamp.type", "LogAppendTime"),
    ("unclean.leader.election.enable", "false"),
];

/// What is wrong with the topic, and how to fix it.
pub fn check(settings: &KafkaLogSettings, replication_factor: i32, actual: &ActualTopic) -> Vec<Finding> {
    let mut findings = check_replicas(settings, replication_factor, actual);
    let value = |name: &str| actual.configs.get(name).map_or("unknown", String::as_str);
    let mut wrong = |name: &str, wanted: &str, why: &str| {
        findings.push(Finding {
            fatal: true,
            what: format!("{} has {name}={}: {why}", settings.topic, value(name)),
            fix: alter(settings, name, wanted),
        });
    };
    for (name, wanted) in FIXED_CONFIGS {
        if value(name) != wanted {
            wrong(name, wanted, &format!("it must be {wanted}"));
        }
    }
    let number = |name: &str| value(name).parse::<i64>().unwrap_or(-1);
    if number("max.message.bytes") < i64::from(MAX_RECORD_BYTES) {
        let wanted = MAX_RECORD_BYTES.to_string();
        wrong("max.message.bytes", &wanted, &format!("a commit may need {wanted}"));
    }
    let wanted = min_insync_replicas(actual.replicas);
    let min_insync = usize::try_from(number("min.insync.replicas")).unwrap_or(0);
    if min_insync < wanted {
        wrong("min.insync.replicas", &wanted.to_string(), "one broker's disk could hold the only copy of a record");
    } else if min_insync > actual.replicas {
        let why = format!("with {} replicas Kafka silently takes that number instead", actual.replicas);
        wrong("min.insync.replicas", &wanted.to_string(), &why);
    }
    findings
}

fn check_replicas(settings: &KafkaLogSettings, replication_factor: i32, actual: &ActualTopic) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (topic, servers) = (&settings.topic, &settings.bootstrap_servers);
    if actual.partitions != 1 {
        findings.push(Finding {
            fatal: true,
            what: format!("{topic} has {} partitions: one order needs one partition", actual.partitions),
            fix: format!(
                "kafka-topics.sh --bootstrap-server {servers} --delete --topic {topic} (only if it is not yet in use)"
            ),
        });
    }
    if actual.replicas < usize::try_from(replication_factor).unwrap_or(1) {
        findings.push(Finding {
            fatal: true,
            what: format!("{topic} has {} replicas: {replication_factor} are configured", actual.replicas),
            fix: format!(
                "kafka-reassign-partitions.sh --bootstrap-server {servers} --execute --reassignment-json-file FILE, where FILE gives {topic} partition 0 {replication_factor} replicas"
            ),
        });
    } else if replication_factor < DEFAULT_REPLICATION_FACTOR {
        findings.push(Finding {
            fatal: false,
            what: format!("{topic} has {} replicas: losing them loses every diskless topic", actual.replicas),
            fix: format!("set metadata.replication.factor to {DEFAULT_REPLICATION_FACTOR} and reassign the partition"),
        });
    }
    findings
}

fn alter(settings: &KafkaLogSettings, name: &str, value: &str) -> String {
    format!(
        "kafka-configs.sh --bootstrap-server {} --alter --entity-type topics --entity-name {} --add-config {name}={value}",
        settings.bootstrap_servers, settings.topic
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> KafkaLogSettings {
        KafkaLogSettings {
            bootstrap_servers: "kafka:9092".to_owned(),
            topic: DEFAULT_TOPIC.to_owned(),
            client: BTreeMap::new(),
        }
    }

    fn good(replicas: usize) -> ActualTopic {
        let configs = wanted_configs(i32::try_from(replicas).expect("small"));
        let configs = configs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        ActualTopic { partitions: 1, replicas, configs }
    }

    #[track_caller]
    fn check_one(name: &str, value: &str, fix: &str) {
        let mut actual = good(3);
        actual.configs.insert(name.to_owned(), value.to_owned());
        let findings = check(&settings(), 3, &actual);
        assert_eq!(findings.len(), 1, "{name}={value}: {findings:?}");
        assert!(findings[0].fatal);
        assert!(findings[0].fix.ends_with(&format!("--entity-name {DEFAULT_TOPIC} --add-config {fix}")));
    }

    #[test]
    fn what_we_create_passes() {
        assert_eq!(check(&settings(), 3, &good(3)), []);
    }

    #[test]
    fn every_wrong_setting_is_found_with_its_fix() {
        check_one("cleanup.policy", "compact", "cleanup.policy=delete");
        check_one("retention.ms", "604800000", "retention.ms=-1");
        check_one("retention.bytes", "1000", "retention.bytes=-1");
        check_one("message.timestamp.type", "CreateTime", "message.timestamp.type=LogAppendTime");
        check_one("unclean.leader.election.enable", "true", "unclean.leader.election.enable=false");
        check_one("max.message.bytes", "1048588", "max.message.bytes=10485760");
        check_one("min.insync.replicas", "1", "min.insync.replicas=2");
        check_one("min.insync.replicas", "4", "min.insync.replicas=2");
    }

    #[test]
    fn too_few_replicas_are_fatal_unless_configured() {
        let findings = check(&settings(), 3, &good(1));
        assert!(findings.iter().any(|f| f.fatal && f.what.contains("1 replicas: 3 are configured")), "{findings:?}");
        let findings = check(&settings(), 1, &good(1));
        assert!(matches!(findings.as_slice(), [Finding { fatal: false, .. }]), "{findings:?}");
    }

    #[test]
    fn more_than_one_partition_is_fatal() {
        let actual = ActualTopic { partitions: 3, ..good(3) };
        assert!(check(&settings(), 3, &actual)[0].fatal);
    }
}
