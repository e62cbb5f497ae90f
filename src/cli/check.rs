//! `sidestream check`: tries everything that a proxy needs, and says what to do about what fails.
//!
//! Leaves nothing behind: the object that it writes is deleted, and nothing is created upstream.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{BAD_CONFIGURATION, Configured, say};
use crate::app::kafka_log_settings;
use crate::clock::wall_time_ms;
use crate::config::{Config, MetadataMode};
use crate::metadata_log::{KafkaLog, MetadataLog as _, topic};
use crate::object_storage::ObjectStorage;
use crate::tasks::Tasks;
use crate::types::LogPosition;
use crate::upstream::{self, ClusterView, Connector, TopicWriters};

/// What the lines said so far.
#[derive(Default)]
struct Report {
    failed: u32,
    warned: u32,
}

impl Report {
    fn line(&mut self, word: &str, subject: &str, text: &str) {
        say(&format!("  {word:<5} {subject:<20}  {text}"));
    }

    fn ok(&mut self, subject: &str, text: &str) {
        self.line("ok", subject, text);
    }

    fn warn(&mut self, subject: &str, text: &str, advice: &str) {
        self.warned += 1;
        self.line("warn", subject, text);
        self.line("", "", advice);
    }

    fn fail(&mut self, subject: &str, text: &str, advice: &str) {
        self.failed += 1;
        self.line("fail", subject, text);
        self.line("", "", advice);
    }

    fn end(&self) -> ExitCode {
        match (self.failed, self.warned) {
            (0, 0) => say("all well"),
            (failed, warned) => say(&format!("{failed} failed, {warned} warned")),
        }
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

pub(super) async fn run(configured: &Configured) -> ExitCode {
    let mut report = Report::default();
    let config = match configured.load() {
        Ok(config) => config,
        Err(_) => return ExitCode::from(BAD_CONFIGURATION),
    };
    let proxy = &config.proxy;
    report.ok("configuration", &format!("{}, zone {}, proxy {}", configured.config.display(), proxy.zone, proxy.id));
    let (tasks, _failures) = Tasks::new();
    if let Some(cluster) = check_upstream(&config, &tasks, &mut report).await {
        check_rights(&config, &cluster, &mut report).await;
        if config.metadata.mode == MetadataMode::Distributed {
            check_metadata_topic(&config, &mut report).await;
        }
    }
    check_store(&config, &mut report).await;
    // What is still open belongs to connections that end with the process.
    let _ = tasks.stop_and_join(Duration::from_secs(5)).await;
    report.end()
}

async fn check_upstream(config: &Config, tasks: &Tasks, report: &mut Report) -> Option<ClusterView> {
    let settings = &config.upstream;
    let connector = match Connector::new(settings.security.clone(), settings.connect_timeout) {
        Ok(connector) => connector,
        Err(error) => {
            report.fail("upstream", &error.to_string(), "correct upstream.ssl.ca.file");
            return None;
        }
    };
    let bootstrap = settings.bootstrap_servers.clone();
    let cluster = ClusterView::new(connector, upstream::Settings::default(), bootstrap, tasks.clone());
    match cluster.refresh().await {
        Ok(known) => {
            report.ok("upstream", &format!("{} brokers, cluster {}", known.brokers.len(), known.id));
            Some(cluster)
        }
        Err(error) => {
            let advice = "check upstream.bootstrap.servers, upstream.security.protocol and the credential";
            report.fail("upstream", &error.to_string(), advice);
            None
        }
    }
}

/// What the proxy's own credential may see. Rights on single topics show when they are used.
async fn check_rights(config: &Config, cluster: &ClusterView, report: &mut Report) {
    match cluster.metadata_of_all_topics().await {
        Ok(metadata) => report.ok("rights", &format!("{} topics can be seen", metadata.topics.len())),
        Err(error) => report.fail("rights", &error.to_string(), "allow DESCRIBE on topics to the proxy's principal"),
    }
    let diskless = config.diskless.authorization;
    report.ok("authorization", &format!("diskless topics: {diskless:?}").to_lowercase());
    check_bypass(cluster, report).await;
}

/// Whether clients can write to shadow topics past the proxies, where nobody would read it. No setting of a topic
/// prevents that; ACLs that name the proxies' hosts do.
async fn check_bypass(cluster: &ClusterView, report: &mut Report) {
    let subject = "shadow topics";
    let advice = "allow WRITE from the proxies only: kafka-acls --add --allow-principal User:NAME --allow-host PROXY --operation Write --topic NAME";
    match cluster.topic_writers().await {
        Ok(Ok(TopicWriters::NoAuthorizer)) => report.warn(
            subject,
            "the cluster has no authorizer: a client that reaches a broker can write to them past the proxies",
            "let only the proxies reach the brokers, or use an authorizer",
        ),
        Ok(Ok(TopicWriters::Allowed(acls))) => match acls.iter().find(|acl| acl.host == "*") {
            Some(acl) => {
                let text = format!("{} may write to {:?} from every host", acl.principal, acl.topic);
                report.warn(subject, &text, advice);
            }
            None => report.ok(subject, &format!("{} ACLs allow writing, each from a named host", acls.len())),
        },
        Ok(Err(code)) => report.warn(
            subject,
            &format!("the ACLs cannot be read (error code {code}), so it is not known who may write to them"),
            "allow DESCRIBE on the cluster to the proxy's principal",
        ),
        Err(error) => report.warn(subject, &format!("the ACLs cannot be read: {error}"), advice),
    }
}

async fn check_metadata_topic(config: &Config, report: &mut Report) {
    let settings = kafka_log_settings(config);
    let actual = match topic::describe(&settings).await {
        Ok(actual) => actual,
        Err(_) => {
            let text = format!("{} does not exist yet; the first proxy creates it", config.metadata.topic);
            report.ok("metadata topic", &text);
            return;
        }
    };
    let findings = topic::check(&settings, config.metadata.replication_factor, &actual);
    for finding in &findings {
        if finding.fatal {
            report.fail("metadata topic", &finding.what, &finding.fix);
        } else {
            report.warn("metadata topic", &finding.what, &finding.fix);
        }
    }
    if findings.is_empty() {
        report.ok("metadata topic", &format!("{}, {} replicas", config.metadata.topic, actual.replicas));
    }
    check_clock(config, report).await;
}

/// A clock further off than this makes commits look older or younger than they are.
const CLOCK_WARN_MS: i64 = 5_000;
const CLOCK_FAIL_MS: i64 = 30_000;

/// Compares this host's clock with the brokers' by the newest record of the log, which a running proxy's heartbeat
/// renews every three seconds. Without a running proxy only a clock that is behind shows.
async fn check_clock(config: &Config, report: &mut Report) {
    let Some(newest) = newest_record_time(config).await else {
        report.ok("clock", "the log has no record to compare with yet");
        return;
    };
    let ahead = wall_time_ms() - newest;
    let advice = "set the clock (chronyc makestep), then run check again";
    if -ahead > CLOCK_FAIL_MS {
        report.fail("clock", &format!("this host is {} s behind the brokers", -ahead / 1000), advice);
    } else if -ahead > CLOCK_WARN_MS {
        report.warn("clock", &format!("this host is {} s behind the brokers", -ahead / 1000), advice);
    } else {
        report.ok("clock", &format!("the log's newest record is {:.1} s old by this host's clock", ahead as f64 / 1e3));
    }
}

async fn newest_record_time(config: &Config) -> Option<i64> {
    let log = KafkaLog::open(kafka_log_settings(config)).ok()?;
    let end = log.end().await.ok()?;
    let start = log.start().await.ok()?;
    if end <= start {
        return None;
    }
    let mut tail = log.tail(LogPosition(end.0 - 1)).ok()?;
    let group = tokio::time::timeout(Duration::from_secs(5), tail.groups.recv()).await.ok()??;
    group.ok()?.last().map(|record| record.append_time_ms)
}

async fn check_store(config: &Config, report: &mut Report) {
    let url = &config.store.url;
    let store = match ObjectStorage::open(&config.store) {
        Ok(store) => store,
        Err(error) => {
            report.fail("store", &format!("{url}: {error}"), "correct store.url and store.option.*");
            return;
        }
    };
    match try_store(&store).await {
        Ok((put, get)) => {
            let text = format!("{url}: put, read back, range, list, delete; PUT {put} ms, GET {get} ms");
            report.ok("store", &text);
        }
        Err(problem) => {
            report.fail(
                "store",
                &format!("{url}: {problem}"),
                "check that it exists and that the credential may put, get, list and delete",
            );
        }
    }
}

/// Times of a PUT and a GET in milliseconds.
async fn try_store(store: &ObjectStorage) -> Result<(u128, u128), String> {
    let key = format!("check/{:016x}", rand::random::<u64>());
    let body = Bytes::from_static(b"sidestream check");
    let started = Instant::now();
    store.put(&key, vec![body.clone()]).await.map_err(|e| format!("an object cannot be put: {e}"))?;
    let put = started.elapsed().as_millis();
    let started = Instant::now();
    let read = store.get_range(&key, 0..body.len() as u64).await.map_err(|e| format!("it cannot be read back: {e}"))?;
    let get = started.elapsed().as_millis();
    let part = store.get_range(&key, 11..16).await.map_err(|e| format!("a range of it cannot be read: {e}"))?;
    let listed = store.list("check", None, 1000).await.map_err(|e| format!("objects cannot be listed: {e}"))?;
    store.delete(&key).await.map_err(|e| format!("it cannot be deleted: {e}"))?;
    if read != body || part != body.slice(11..16) {
        return Err("other bytes came back than were put".to_owned());
    }
    if !listed.iter().any(|object| object.key == key) {
        return Err("the object was not in the listing right after it was put".to_owned());
    }
    Ok((put, get))
}
