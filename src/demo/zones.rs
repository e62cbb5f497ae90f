//! The demo's cluster: a mock Kafka, one log, one store, and a proxy for each of three zones.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

use super::Options;
use super::workload::TOPICS;
use crate::app::{App, SharedParts};
use crate::clock::WallClock;
use crate::config::Config;
use crate::diskless_coordinator::command::{Command, TopicConfig};
use crate::diskless_coordinator::outcome::Outcome;
use crate::metadata_log::{EmbeddedLog, LogLocation};
use crate::object_storage::{self, ObjectStorage, Operation};
use crate::topic_catalog::shadow;
use crate::types::TopicId;

pub(super) const ZONES: [&str; 3] = ["a", "b", "c"];

/// The running cluster.
pub(super) struct Zones {
    apps: Vec<App>,
    store: ObjectStorage,
    /// Removed when the demo ends.
    scratch: Scratch,
    _mock: MockCluster<'static, DefaultProducerContext>,
}

/// What was asked of the object store so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) puts: u64,
    pub(super) gets: u64,
    pub(super) put_bytes: u64,
}

/// A temporary directory.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's own cleaning.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Zones {
    pub(super) async fn start(options: &Options) -> anyhow::Result<Self> {
        let scratch = Scratch(std::env::temp_dir().join(format!("sidestream-demo-{}", std::process::id())));
        std::fs::create_dir_all(&scratch.0).with_context(|| format!("{} cannot be made", scratch.0.display()))?;
        let mock = MockCluster::new(3).context("the mock Kafka cannot be started")?;
        for topic in &TOPICS {
            mock.create_topic(topic.name, topic.partitions, 3).context("the mock Kafka refuses a topic")?;
        }
        let store = open_store(options, &scratch.0)?;
        let log = EmbeddedLog::open(&LogLocation::Memory, WallClock::system()).context("the log cannot be opened")?;
        let shared = SharedParts { log: Some(Arc::new(log)), store: Some(store.clone()) };
        let mut apps = Vec::new();
        for (number, zone) in (0u16..).zip(ZONES) {
            let config = configuration(options, &mock.bootstrap_servers(), &scratch.0, number, zone)?;
            apps.push(
                App::start(config, shared.clone()).await.with_context(|| format!("zone {zone} cannot be started"))?,
            );
        }
        let zones = Self { apps, store, scratch, _mock: mock };
        zones.register_topics().await?;
        Ok(zones)
    }

    /// The mock knows no CreateTopics, so the diskless topics are registered by hand.
    async fn register_topics(&self) -> anyhow::Result<()> {
        let proxy = &self.apps[0].proxy;
        for (number, topic) in (1u8..).zip(&TOPICS).filter(|(_, t)| t.diskless) {
            let known = shadow::topic(&proxy.cluster, topic.name).await.context("the mock Kafka does not answer")?;
            let id = known.map(|t| t.id).filter(|id| !id.is_zero()).unwrap_or(TopicId([number; 16]));
            let command = Command::RegisterTopic {
                name: topic.name.to_owned(),
                topic_id: id,
                partitions: topic.partitions,
                leader_epoch: 0,
                config: TopicConfig { version: 1, ..TopicConfig::default() },
            };
            proxy.coordination.submit(Command::PendingTopic { name: topic.name.to_owned() }).await?;
            match proxy.coordination.submit(command).await? {
                Outcome::Refused(reason) => anyhow::bail!("the topic {:?} cannot be registered: {reason}", topic.name),
                _ => continue,
            }
        }
        Ok(())
    }

    pub(super) fn bootstraps(&self) -> Vec<String> {
        self.apps.iter().map(|app| app.proxy.endpoint.to_string()).collect()
    }

    pub(super) fn admin(&self) -> String {
        self.apps[0].admin.to_string()
    }

    pub(super) fn store_name(&self) -> String {
        self.scratch.0.display().to_string()
    }

    pub(super) fn usage(&self) -> Usage {
        let stats = self.store.stats();
        let (put, get) = (stats.counts(Operation::Put), stats.counts(Operation::Get));
        Usage { puts: put.attempts, gets: get.attempts, put_bytes: put.bytes }
    }

    /// The log position of each zone.
    pub(super) fn positions(&self) -> Vec<i64> {
        self.apps.iter().map(|app| app.proxy.coordination.applied().0).collect()
    }

    pub(super) async fn stop(self) {
        for app in self.apps {
            app.shutdown().await;
        }
    }
}

fn open_store(options: &Options, scratch: &std::path::Path) -> anyhow::Result<ObjectStorage> {
    let url = match options.store.as_deref() {
        Some("memory") => "memory://".to_owned(),
        Some(directory) => {
            let path = std::path::absolute(directory).context("--store is not a path")?;
            format!("file://{}", path.display())
        }
        None => format!("file://{}", scratch.join("store").display()),
    };
    let mut config = object_storage::Config::new(url);
    config.simulate = Some(options.simulate);
    ObjectStorage::open(&config).context("--store cannot be used")
}

fn configuration(
    options: &Options,
    upstream: &str,
    scratch: &std::path::Path,
    number: u16,
    zone: &str,
) -> anyhow::Result<Config> {
    let port = if options.port == 0 { 0 } else { options.port + 100 * number };
    let admin = if options.port == 0 { 0 } else { 8080 + number };
    let servers: Vec<_> = upstream.split(',').map(|s| format!("{s:?}")).collect();
    let text = format!(
        r#"
        [proxy]
        id = {number}
        zone = "{zone}"
        [listener]
        advertised.host = "127.0.0.1"
        bootstrap.port = {port}
        [upstream]
        bootstrap.servers = [{servers}]
        [metadata]
        mode = "standalone"
        directory = "{directory}"
        new.log = true
        [store]
        url = "memory://"
        [diskless]
        authorization = "none"
        [admin]
        bind = "127.0.0.1:{admin}"
        "#,
        servers = servers.join(", "),
        directory = scratch.join(zone).display(),
    );
    Config::parse(&text, &[], |_| None).map_err(|mistakes| anyhow::anyhow!(mistakes.join("; ")))
}
