//! The composition root: makes a running proxy of a configuration, and takes it down in order.
//!
//! Only this module constructs adapters and services. Shutdown goes from the doors inward, each step bounded: no new
//! connections, answers that are owed, the active segment, the goodbye in the log, the metadata store.

mod faults;
mod preflight;
pub mod seams;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use tokio::sync::mpsc;

pub use preflight::{ensure_store_is_ours, kafka_log_settings};

use crate::admin_server::{AdminListener, Sources};
use crate::clock::WallClock;
use crate::config::{Config, MetadataMode};
use crate::coordination::{self, Coordination, Status};
use crate::fetch::{FetchMemory, FetchService, Reader};
use crate::kafka_server::{Acceptor, ByteBudget, Door, Listener, MappedListeners, Proxy};
use crate::metadata_log::{EmbeddedLog, LogLocation, MetadataLog};
use crate::metadata_store::StoreLocation;
use crate::object_storage::ObjectStorage;
use crate::object_storage::zone_cache::{ZoneCache, ZoneCacheConfig};
use crate::produce::{self, ProduceService};
use crate::tasks::{TaskFailed, Tasks};
use crate::topic_catalog::{self, StrayStats, TopicCatalog};
use crate::types::{Endpoint, TopicId};
use crate::upstream::{self, ClusterView, Connector};

/// Parts that several proxies of one process share. What is absent is made as the configuration says.
#[derive(Clone, Default)]
pub struct SharedParts {
    pub log: Option<Arc<dyn MetadataLog>>,
    pub store: Option<ObjectStorage>,
}

/// A running proxy.
pub struct App {
    pub proxy: Arc<Proxy>,
    pub sources: Arc<Sources>,
    /// Where the admin server listens.
    pub admin: Endpoint,
    services: Tasks,
    failures: [mpsc::Receiver<TaskFailed>; 2],
}

/// How long the doors may take to give the answers that they owe.
const DRAIN: Duration = Duration::from_secs(25);
const STOP: Duration = Duration::from_secs(10);

impl App {
    /// Starts everything; returns when clients are served.
    pub async fn start(config: Config, shared: SharedParts) -> anyhow::Result<Self> {
        // Ports first: a mistake there should not cost an incarnation in the log.
        let listener = bind(&config).await?;
        let endpoint =
            Endpoint { host: config.listener.advertised_host.clone(), port: listener.local_address()?.port() };
        let admin = bind_admin(&config.admin.bind).await?;
        let admin_address = admin.local_address()?;
        preflight::ensure_directory(&config.metadata.directory)?;
        let (services, services_failed) = Tasks::new();
        let (doors, doors_failed) = Tasks::new();
        let cluster = connect(&config, &services).await?;
        let store = match shared.store {
            Some(store) => store,
            None => ObjectStorage::open(&config.store).context("store.url cannot be used")?,
        };
        if let Some(file) = config.testing.store_fault_file.clone() {
            services.spawn("store faults", faults::follow(file, store.faults().clone(), services.stop_token()));
        }
        let log = match shared.log {
            Some(log) => log,
            None => open_log(&config, &cluster).await?,
        };
        ensure_store_is_ours(&config, log.as_ref(), &store).await?;
        let metadata_topic_id = metadata_topic_id(&config, &cluster).await?;
        let coordination = coordinate(&config, &endpoint, (&cluster, metadata_topic_id), log, &services).await?;
        let cache_config = ZoneCacheConfig { max_bytes: config.fetch.cache_bytes, ..ZoneCacheConfig::default() };
        let cache = Arc::new(ZoneCache::new(store.clone(), coordination.log_id(), cache_config));
        let catalog = Arc::new(TopicCatalog::new(
            Arc::clone(&coordination),
            cluster.clone(),
            (config.metadata.topic.clone(), metadata_topic_id),
        ));
        let produce = start_produce(&config, &coordination, &store, &cache, &services);
        let freshness = Arc::new(seams::LogFreshness::new(Arc::clone(&coordination), config.metadata.barrier));
        let reader = Reader::new(Arc::clone(&cache), Arc::clone(coordination.view()));
        let fetch = Arc::new(FetchService::new(reader, freshness, FetchMemory::new(config.fetch.memory_bytes)));
        let proxy = Arc::new(Proxy {
            acceptor: Acceptor::new(config.listener.tls.as_ref(), config.listener.max_connections)?,
            request_memory: ByteBudget::new(config.listener.request_memory_bytes),
            buffers: Arc::default(),
            tasks: doors.clone(),
            coordination,
            offered: ArcSwap::from_pointee(cluster.any().await?.api_versions().clone()),
            cluster,
            catalog: Arc::clone(&catalog),
            produce,
            fetch,
            fetch_sessions: Default::default(),
            mapped: MappedListeners::default(),
            endpoint,
            stats: Arc::default(),
            config,
        });
        let strays = Arc::<StrayStats>::default();
        services.spawn("topic watcher", topic_catalog::watch(catalog, Arc::clone(&strays), services.stop_token()));
        services.spawn("cluster watcher", follow_cluster(Arc::clone(&proxy), services.clone()));
        let sources = Arc::new(Sources { proxy: Arc::clone(&proxy), store, cache, strays });
        doors.spawn("admin server", admin.serve(Arc::clone(&sources), doors.stop_token()));
        let brokers = broker_ids(&proxy);
        let open = proxy.mapped.ensure(&proxy, &brokers).await;
        anyhow::ensure!(open.len() == brokers.len(), "a mapped listener cannot be opened: see the log above");
        doors.spawn("bootstrap listener", listener.serve(Arc::clone(&proxy), Door::VirtualBroker, doors.stop_token()));
        tracing::info!(bootstrap = %proxy.endpoint, admin = %admin_address, zone = proxy.config.proxy.zone, "serving");
        let admin = Endpoint { host: admin_address.ip().to_string(), port: admin_address.port() };
        Ok(Self { proxy, sources, admin, services, failures: [services_failed, doors_failed] })
    }

    /// Runs until the signal comes, or until this proxy must not go on.
    pub async fn run_until(mut self, signal: impl Future<Output = ()>) -> anyhow::Result<()> {
        let [services_failed, doors_failed] = &mut self.failures;
        let mut status = self.proxy.coordination.status();
        let ended = tokio::select! {
            () = signal => Ok(()),
            Some(failed) = services_failed.recv() => Err(anyhow::anyhow!("the task {:?} panicked", failed.task)),
            Some(failed) = doors_failed.recv() => Err(anyhow::anyhow!("the task {:?} panicked", failed.task)),
            reason = fenced(&mut status) => Err(anyhow::anyhow!(reason)),
        };
        if let Err(reason) = &ended {
            tracing::error!(%reason, "this proxy stops");
        }
        self.shutdown().await;
        ended
    }

    /// Takes the proxy down in order.
    pub async fn shutdown(self) {
        tracing::info!("draining: no new connections, answers that are owed are given");
        if let Err(late) = self.proxy.tasks.stop_and_join(DRAIN).await {
            tracing::warn!(%late, "connections did not drain in time");
        }
        if tokio::time::timeout(STOP, self.proxy.produce.shutdown()).await.is_err() {
            tracing::warn!(
                "batches that were taken in were not all answered in time; their producers will send them again"
            );
        }
        self.proxy.coordination.close().await;
        if let Err(late) = self.services.stop_and_join(STOP).await {
            tracing::warn!(%late, "services did not stop in time");
        }
        tracing::info!("stopped");
    }
}

/// Resolves when another process has taken this proxy's id.
async fn fenced(status: &mut tokio::sync::watch::Receiver<Status>) -> String {
    loop {
        let now = status.borrow_and_update().clone();
        match now {
            Status::Fenced(reason) => return reason,
            Status::Failed(reason) => {
                tracing::error!(reason, "diskless topics are not served any more; classic topics go on");
            }
            Status::Starting | Status::Serving | Status::Stopped => {}
        }
        if status.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

async fn bind(config: &Config) -> anyhow::Result<Listener> {
    let (host, port) = (&config.listener.bind_host, config.listener.bootstrap_port);
    Listener::bind(host, port).await.with_context(|| {
        format!("the bootstrap listener cannot be opened on {host}:{port}: free the port, or change listener.bind.host or listener.bootstrap.port")
    })
}

async fn bind_admin(bind: &Endpoint) -> anyhow::Result<AdminListener> {
    AdminListener::bind(&bind.host, bind.port)
        .await
        .with_context(|| format!("the admin listener cannot be opened on {bind}: free the port, or change admin.bind"))
}

async fn connect(config: &Config, services: &Tasks) -> anyhow::Result<ClusterView> {
    let upstream = &config.upstream;
    let connector = Connector::new(upstream.security.clone(), upstream.connect_timeout)
        .context("the security settings of upstream cannot be used")?;
    let settings = upstream::Settings::default();
    let cluster = ClusterView::new(connector, settings, upstream.bootstrap_servers.clone(), services.clone());
    let servers = upstream.bootstrap_servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    cluster.refresh().await.with_context(|| {
        format!("upstream Kafka cannot be reached at {servers}: check upstream.bootstrap.servers and upstream.security.protocol")
    })?;
    Ok(cluster)
}

async fn open_log(config: &Config, cluster: &ClusterView) -> anyhow::Result<Arc<dyn MetadataLog>> {
    match config.metadata.mode {
        MetadataMode::Standalone => {
            let path = config.metadata.directory.join("log.redb");
            let log = EmbeddedLog::open(&LogLocation::File(path.clone()), WallClock::system())
                .with_context(|| format!("the metadata log {} cannot be opened", path.display()))?;
            Ok(Arc::new(log))
        }
        MetadataMode::Distributed => {
            let log = preflight::open_kafka_log(config, cluster).await?;
            Ok(Arc::new(log))
        }
    }
}

const ID_ATTEMPTS: u32 = 50;
const ID_ATTEMPT_EVERY: Duration = Duration::from_millis(200);

/// The id of the topic that holds the log; zero where it is none.
async fn metadata_topic_id(config: &Config, cluster: &ClusterView) -> anyhow::Result<TopicId> {
    match config.metadata.mode {
        MetadataMode::Standalone => Ok(TopicId::ZERO),
        MetadataMode::Distributed => {
            // The topic exists: it was made or found a moment ago. Not every broker may have heard of it.
            for _ in 0..ID_ATTEMPTS {
                if let Some(topic) = topic_catalog::shadow::topic(cluster, &config.metadata.topic).await? {
                    return Ok(topic.id);
                }
                tokio::time::sleep(ID_ATTEMPT_EVERY).await;
            }
            anyhow::bail!(
                "no broker of upstream knows the topic {:?}: check the rights of the proxy's principal",
                config.metadata.topic
            )
        }
    }
}

async fn coordinate(
    config: &Config,
    endpoint: &Endpoint,
    (cluster, metadata_topic_id): (&ClusterView, TopicId),
    log: Arc<dyn MetadataLog>,
    services: &Tasks,
) -> anyhow::Result<Arc<Coordination>> {
    let settings = coordination::Settings {
        proxy: config.proxy.id,
        zone: config.proxy.zone.clone(),
        endpoint: endpoint.clone(),
        store: StoreLocation::File(config.metadata.directory.join("metadata.redb")),
        upstream_cluster_id: cluster.cluster().id.clone(),
        metadata_topic_id,
        timing: coordination::Timing::default(),
        clock: WallClock::system(),
        identity: coordination::Identity::random(),
    };
    Coordination::start(settings, log, services).await.context("the metadata log cannot be followed")
}

fn start_produce(
    config: &Config,
    coordination: &Arc<Coordination>,
    store: &ObjectStorage,
    cache: &Arc<ZoneCache>,
    services: &Tasks,
) -> Arc<ProduceService> {
    let diskless = &config.diskless;
    let settings = produce::Config {
        max_bytes: diskless.buffer_max_bytes,
        window: diskless.commit_interval,
        quiet: diskless.quiet,
        quiet_bytes: diskless.quiet_bytes,
        inflight_max_bytes: diskless.inflight_max_bytes,
        uploads_max: diskless.uploads,
        ..produce::Config::default()
    };
    let commits = Arc::new(seams::Commits::new(Arc::clone(coordination)));
    ProduceService::start(settings, coordination.log_id(), store.clone(), Arc::clone(cache), commits, services)
}

fn broker_ids(proxy: &Proxy) -> BTreeSet<i32> {
    proxy.cluster.cluster().brokers.keys().copied().collect()
}

/// Keeps the list of brokers and their mapped listeners in step with upstream.
async fn follow_cluster(proxy: Arc<Proxy>, services: Tasks) {
    let stop = services.stop_token();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(proxy.config.upstream.refresh) => {}
        }
        if let Err(error) = proxy.cluster.refresh().await {
            tracing::warn!(%error, "the brokers of upstream cannot be asked; what was known of them stays in use");
            continue;
        }
        if let Ok(connection) = proxy.cluster.any().await {
            proxy.offered.store(Arc::new(connection.api_versions().clone()));
        }
        let listed = broker_ids(&proxy);
        // A port that cannot be opened was reported; clients are told of the others.
        proxy.mapped.ensure(&proxy, &listed).await;
        proxy.mapped.follow(&listed, Instant::now()).await;
    }
}

/// Waits for SIGTERM or Ctrl-C.
pub async fn termination() -> anyhow::Result<()> {
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = term.recv() => {}
        ctrl_c = tokio::signal::ctrl_c() => ctrl_c?,
    }
    Ok(())
}
