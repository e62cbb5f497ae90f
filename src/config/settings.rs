//! Every setting by name, with its default and what it is for. The only place that names settings.

use std::path::PathBuf;
use std::time::Duration;

use regex::Regex;

use super::Config;
use super::file::Settings;
use super::reader::Reader;
use crate::coordination::BarrierKind;
use crate::object_storage;
use crate::types::{Endpoint, ProxyId};
use crate::upstream::{Mechanism, Protocol, Secret, Security};

/// Who this proxy is.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    pub id: ProxyId,
    pub zone: String,
}

/// Where clients connect.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// The host that clients are told to dial.
    pub advertised_host: String,
    pub bind_host: String,
    pub bootstrap_port: u16,
    /// The mapped port of broker `n` is this plus `n`; 0 takes free ports from the system.
    pub mapped_port_base: u16,
    pub tls: Option<ListenerTls>,
    /// Clients authenticate to upstream through us.
    pub sasl: bool,
    pub max_frame_bytes: usize,
    pub max_connections: usize,
    /// Frames of all connections that are held in memory at once.
    pub request_memory_bytes: usize,
    pub fetch_rack: bool,
}

/// The certificate that clients see.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    pub certificate_file: PathBuf,
    pub key_file: PathBuf,
}

/// The existing Kafka.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    pub bootstrap_servers: Vec<Endpoint>,
    pub security: Security,
    pub connect_timeout: Duration,
    pub refresh: Duration,
}

/// Where the metadata log lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetadataMode {
    /// In a topic of the upstream Kafka, shared by all proxies.
    Distributed,
    /// In a file of this proxy, which is then the only one.
    Standalone,
}

#[derive(Clone, Debug)]
pub struct MetadataConfig {
    pub mode: MetadataMode,
    pub topic: String,
    pub replication_factor: i32,
    pub directory: PathBuf,
    /// What look-ups of offsets wait for.
    pub barrier: BarrierKind,
    /// Accept an empty log in front of a store that holds another log's objects.
    pub new_log: bool,
}

/// Who may use a diskless topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Authorization {
    /// Whoever upstream says, asked on the client's own connection.
    Upstream,
    /// Everyone: for clusters without an authorizer.
    None,
}

/// What to do with a producer that is not idempotent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdempotencePolicy {
    Require,
    Warn,
}

/// How diskless topics are made and written.
#[derive(Clone, Debug)]
pub struct DisklessConfig {
    pub topics: Vec<Regex>,
    pub idempotence: IdempotencePolicy,
    pub authorization: Authorization,
    pub authorization_cache: Duration,
    pub commit_interval: Duration,
    pub buffer_max_bytes: usize,
    pub quiet: Duration,
    pub quiet_bytes: usize,
    pub inflight_max_bytes: usize,
    pub uploads: usize,
}

impl DisklessConfig {
    /// Whether a topic of this name is created diskless without being asked for. Never Kafka's own topics, whose names
    /// begin with two underscores.
    pub fn matches(&self, name: &str) -> bool {
        !name.starts_with("__") && self.topics.iter().any(|t| t.is_match(name))
    }
}

#[derive(Clone, Debug)]
pub struct FetchConfig {
    pub cache_bytes: u64,
    pub max_bytes: usize,
    /// Records of all answers that are being made or not yet written.
    pub memory_bytes: usize,
}

/// For tests of this proxy and of what is built on it.
#[derive(Clone, Debug)]
pub struct TestingConfig {
    /// A file of fault rules for the object store (JSON), followed while the proxy runs.
    pub store_fault_file: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub struct AdminConfig {
    pub bind: Endpoint,
}

const MIB: i64 = 1024 * 1024;

pub(super) fn read(settings: Settings) -> Result<Config, Vec<String>> {
    let mut r = Reader::new(settings);
    let listener_protocol = protocol(&mut r, "listener.security.protocol");
    let config = Config {
        proxy: proxy(&mut r),
        listener: listener(&mut r, listener_protocol),
        upstream: upstream(&mut r),
        metadata: metadata(&mut r),
        store: store(&mut r),
        diskless: diskless(&mut r),
        fetch: fetch(&mut r),
        admin: admin(&mut r),
        testing: TestingConfig { store_fault_file: r.optional_string("store.fault.file").map(PathBuf::from) },
    };
    if r.is_set("upstream.security.protocol") || r.is_set("listener.security.protocol") {
        check_sasl(&mut r, &config);
    }
    r.finish()?;
    Ok(config)
}

/// Clients authenticate to upstream through us, so both sides speak SASL or neither.
fn check_sasl(r: &mut Reader, config: &Config) {
    let upstream = matches!(config.upstream.security.protocol, Protocol::SaslPlaintext | Protocol::SaslSsl);
    if config.listener.sasl != upstream {
        let name = "listener.security.protocol";
        r.error(name, "and upstream.security.protocol must both use SASL or both not: clients authenticate to upstream through the proxy");
    }
}

fn milliseconds(r: &mut Reader, name: &str, default: i64, least: i64, most: i64) -> Duration {
    Duration::from_millis(r.integer(name, default, least, most).unsigned_abs())
}

fn bytes(r: &mut Reader, name: &str, default: i64, least: i64) -> usize {
    usize::try_from(r.integer(name, default, least, i64::MAX)).unwrap_or(usize::MAX)
}

fn port(r: &mut Reader, name: &str, default: u16) -> u16 {
    u16::try_from(r.integer(name, i64::from(default), 0, 65_535)).unwrap_or(default)
}

fn proxy(r: &mut Reader) -> ProxyConfig {
    if !r.is_set("proxy.id") {
        r.error("proxy.id", "is not set: give each proxy of one metadata log a number of its own");
    }
    let id = r.integer("proxy.id", 0, 0, 1_000_000);
    ProxyConfig {
        id: ProxyId(u32::try_from(id).unwrap_or(0)),
        zone: r.required_string("proxy.zone", "the availability zone this proxy runs in"),
    }
}

fn protocol(r: &mut Reader, name: &str) -> Protocol {
    let choices = [
        ("PLAINTEXT", Protocol::Plaintext),
        ("SSL", Protocol::Ssl),
        ("SASL_PLAINTEXT", Protocol::SaslPlaintext),
        ("SASL_SSL", Protocol::SaslSsl),
    ];
    r.choice(name, Protocol::Plaintext, &choices)
}

fn listener(r: &mut Reader, protocol: Protocol) -> ListenerConfig {
    let tls = matches!(protocol, Protocol::Ssl | Protocol::SaslSsl).then(|| ListenerTls {
        certificate_file: r
            .required_string("listener.ssl.certificate.file", "a PEM file with the certificate chain")
            .into(),
        key_file: r.required_string("listener.ssl.key.file", "a PEM file with the private key").into(),
    });
    ListenerConfig {
        advertised_host: r
            .required_string("listener.advertised.host", "the host name or address that clients of this zone dial"),
        bind_host: r.string("listener.bind.host", "127.0.0.1"),
        bootstrap_port: port(r, "listener.bootstrap.port", 9092),
        mapped_port_base: port(r, "listener.mapped.port.base", 0),
        tls,
        sasl: matches!(protocol, Protocol::SaslPlaintext | Protocol::SaslSsl),
        max_frame_bytes: bytes(r, "listener.max.frame.bytes", 100 * MIB, 1024),
        max_connections: bytes(r, "listener.max.connections", 10_000, 1),
        request_memory_bytes: bytes(r, "listener.request.memory.bytes", 512 * MIB, MIB),
        fetch_rack: r.boolean("listener.fetch.rack", true),
    }
}

fn upstream(r: &mut Reader) -> UpstreamConfig {
    let name = "upstream.bootstrap.servers";
    let listed = r.strings(name);
    let mut bootstrap_servers = Vec::new();
    for server in &listed {
        match server.parse() {
            Ok(endpoint) => bootstrap_servers.push(endpoint),
            Err(problem) => r.error(name, &format!("is not valid: {problem}")),
        }
    }
    if listed.is_empty() {
        r.error(name, "is not set: list at least one broker as \"HOST:PORT\"");
    }
    UpstreamConfig {
        bootstrap_servers,
        security: security(r),
        connect_timeout: milliseconds(r, "upstream.connect.timeout.ms", 5_000, 1, 600_000),
        refresh: milliseconds(r, "upstream.metadata.refresh.ms", 5_000, 100, 600_000),
    }
}

fn security(r: &mut Reader) -> Security {
    let protocol = protocol(r, "upstream.security.protocol");
    let sasl = matches!(protocol, Protocol::SaslPlaintext | Protocol::SaslSsl);
    let mechanisms = [
        ("PLAIN", Mechanism::Plain),
        ("SCRAM-SHA-256", Mechanism::ScramSha256),
        ("SCRAM-SHA-512", Mechanism::ScramSha512),
    ];
    let mechanism = r.choice("upstream.sasl.mechanism", Mechanism::Plain, &mechanisms);
    let (mut username, mut password) = (String::new(), String::new());
    if sasl {
        username = r.required_string(
            "upstream.sasl.username",
            "the proxy's own user (or set SIDESTREAM_UPSTREAM_SASL_USERNAME)",
        );
        password =
            r.required_string("upstream.sasl.password", "its password (better: set SIDESTREAM_UPSTREAM_SASL_PASSWORD)");
    }
    Security {
        protocol,
        ca_file: r.optional_string("upstream.ssl.ca.file").map(PathBuf::from),
        mechanism,
        username,
        password: Secret::new(password),
    }
}

fn metadata(r: &mut Reader) -> MetadataConfig {
    let modes = [("distributed", MetadataMode::Distributed), ("standalone", MetadataMode::Standalone)];
    let barriers = [("end", BarrierKind::End), ("record", BarrierKind::Record)];
    MetadataConfig {
        mode: r.choice("metadata.mode", MetadataMode::Distributed, &modes),
        topic: r.string("metadata.topic", "__diskless_metadata"),
        replication_factor: i32::try_from(r.integer("metadata.replication.factor", 3, 1, 100)).unwrap_or(3),
        directory: r.required_string("metadata.directory", "a directory for the metadata store").into(),
        barrier: r.choice("metadata.barrier", BarrierKind::End, &barriers),
        new_log: r.boolean("metadata.new.log", false),
    }
}

fn store(r: &mut Reader) -> object_storage::Config {
    let url = r.required_string("store.url", "s3://bucket/prefix, gs://, az://, file:///directory or memory://");
    let mut config = object_storage::Config::new(url);
    config.attempt_timeout_ms = r.integer("store.attempt.timeout.ms", 2_000, 1, 600_000).unsigned_abs();
    config.timeout_ms = r.integer("store.timeout.ms", 10_000, 1, 600_000).unsigned_abs();
    config.simulate = r.parsed("store.simulate");
    config.options = r.map("store.option").into_iter().collect();
    if let Err(problem) = config.check()
        && r.is_set("store.url")
    {
        r.error("store.url", &format!("is not usable: {problem}"));
    }
    config
}

fn diskless(r: &mut Reader) -> DisklessConfig {
    let mut topics = Vec::new();
    for pattern in r.strings("diskless.topics") {
        match Regex::new(&format!("^(?:{pattern})$")) {
            Ok(regex) => topics.push(regex),
            Err(problem) => r.error("diskless.topics", &format!("has a pattern that is not valid: {problem}")),
        }
    }
    let policies = [("require", IdempotencePolicy::Require), ("warn", IdempotencePolicy::Warn)];
    let authorizations = [("upstream", Authorization::Upstream), ("none", Authorization::None)];
    DisklessConfig {
        topics,
        idempotence: r.choice("diskless.idempotence", IdempotencePolicy::Require, &policies),
        authorization: r.choice("diskless.authorization", Authorization::Upstream, &authorizations),
        authorization_cache: milliseconds(r, "diskless.acl.cache.ms", 5_000, 0, 600_000),
        commit_interval: milliseconds(r, "diskless.append.commit.interval.ms", 250, 1, 10_000),
        buffer_max_bytes: bytes(r, "diskless.append.buffer.max.bytes", 4 * MIB, 1024),
        quiet: milliseconds(r, "diskless.append.quiet.ms", 5, 1, 10_000),
        quiet_bytes: bytes(r, "diskless.append.quiet.bytes", 512 * 1024, 1),
        inflight_max_bytes: bytes(r, "diskless.append.inflight.max.bytes", 256 * MIB, MIB),
        uploads: bytes(r, "diskless.append.uploads", 8, 1),
    }
}

fn fetch(r: &mut Reader) -> FetchConfig {
    FetchConfig {
        cache_bytes: bytes(r, "fetch.cache.bytes", 512 * MIB, MIB) as u64,
        max_bytes: bytes(r, "fetch.max.bytes", 55 * MIB, 1024),
        memory_bytes: bytes(r, "fetch.memory.bytes", 512 * MIB, MIB),
    }
}

fn admin(r: &mut Reader) -> AdminConfig {
    let default = Endpoint { host: "127.0.0.1".to_owned(), port: 8080 };
    AdminConfig { bind: r.parsed("admin.bind").unwrap_or(default) }
}
