//! Checks that must pass before a proxy takes part: the store is this log's, and the metadata topic is safe.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use async_trait::async_trait;

use crate::config::{Config, MetadataMode};
use crate::metadata_log::{EndOffset, KafkaLog, KafkaLogSettings, LogError, MetadataLog, topic};
use crate::object_storage::ObjectStorage;
use crate::topic_catalog::shadow;
use crate::types::LogPosition;
use crate::upstream::{ClusterView, Protocol};

/// Makes the directory of the metadata, and finds out early whether it can be written.
pub(super) fn ensure_directory(directory: &Path) -> anyhow::Result<()> {
    let write = || {
        std::fs::create_dir_all(directory)?;
        let probe = directory.join(format!("probe-{}", std::process::id()));
        std::fs::write(&probe, b"")?;
        std::fs::remove_file(&probe)
    };
    write().with_context(|| {
        let shown = directory.display();
        format!("metadata.directory {shown} cannot be written: give this user the right to, or choose another")
    })
}

/// R1: an empty log in front of a store that holds another log's objects would take them all for garbage. A standalone
/// proxy has its log to itself, so there any other log's objects are somebody else's.
pub async fn ensure_store_is_ours(config: &Config, log: &dyn MetadataLog, store: &ObjectStorage) -> anyhow::Result<()> {
    if config.metadata.new_log {
        return Ok(());
    }
    let (start, end) = (log.start().await?, log.end().await?);
    if start != end {
        return Ok(());
    }
    let found = store.list("", None, 1).await.with_context(|| {
        format!("the object store {} cannot be listed: check store.url and its credentials", config.store.url)
    })?;
    if let Some(object) = found.first() {
        let owner = object.key.split('/').next().unwrap_or_default();
        let log = match config.metadata.mode {
            MetadataMode::Distributed => format!("topic {:?}", config.metadata.topic),
            MetadataMode::Standalone => config.metadata.directory.join("log.redb").display().to_string(),
        };
        bail!(
            "the metadata log ({log}) is empty, but the object store {} holds objects of log {owner}: \
             use the log or the store that belong together, or start with --set metadata.new.log=true to begin a new log beside it",
            config.store.url
        );
    }
    Ok(())
}

/// Opens the metadata topic, making it if it is absent. Refuses one that could lose records.
pub(super) async fn open_kafka_log(config: &Config, cluster: &ClusterView) -> anyhow::Result<KafkaLog> {
    let settings = kafka_log_settings(config);
    let wanted = config.metadata.replication_factor;
    let actual = topic::ensure(&settings, wanted).await?;
    let findings = topic::check(&settings, wanted, &actual);
    for finding in findings.iter().filter(|f| !f.fatal) {
        tracing::warn!(fix = finding.fix, "{}", finding.what);
    }
    let fatal: Vec<_> =
        findings.iter().filter(|f| f.fatal).map(|f| format!("{}\n    fix: {}", f.what, f.fix)).collect();
    if !fatal.is_empty() {
        bail!("the metadata topic could lose records:\n  {}", fatal.join("\n  "));
    }
    let end = LeaderEnd { cluster: cluster.clone(), topic: config.metadata.topic.clone() };
    Ok(KafkaLog::open(settings)?.with_end_offset(Arc::new(end)))
}

/// How librdkafka reaches upstream with the proxy's own credential.
pub fn kafka_log_settings(config: &Config) -> KafkaLogSettings {
    let security = &config.upstream.security;
    let protocol = match security.protocol {
        Protocol::Plaintext => "plaintext",
        Protocol::Ssl => "ssl",
        Protocol::SaslPlaintext => "sasl_plaintext",
        Protocol::SaslSsl => "sasl_ssl",
    };
    let mut client = BTreeMap::from([("security.protocol".to_owned(), protocol.to_owned())]);
    if security.protocol.uses_sasl() {
        client.insert("sasl.mechanism".to_owned(), security.mechanism.name().to_owned());
        client.insert("sasl.username".to_owned(), security.username.clone());
        client.insert("sasl.password".to_owned(), security.password.reveal().to_owned());
    }
    if let Some(file) = &security.ca_file {
        client.insert("ssl.ca.location".to_owned(), file.display().to_string());
    }
    let servers: Vec<_> = config.upstream.bootstrap_servers.iter().map(ToString::to_string).collect();
    KafkaLogSettings { bootstrap_servers: servers.join(","), topic: config.metadata.topic.clone(), client }
}

/// The log's end, asked of its leader over our own connection: librdkafka's own query blocks a thread.
struct LeaderEnd {
    cluster: ClusterView,
    topic: String,
}

#[async_trait]
impl EndOffset for LeaderEnd {
    async fn end(&self) -> Result<LogPosition, LogError> {
        let ends = shadow::log_ends(&self.cluster, &self.topic, 1).await;
        let ends = ends.map_err(|error| LogError::Unavailable(error.to_string()))?;
        ends.first().map(|end| LogPosition(*end)).ok_or_else(|| LogError::Unavailable("no partition".to_owned()))
    }
}
