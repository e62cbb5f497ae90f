//! A whole proxy in this process, in front of librdkafka's mock cluster, and a client that speaks in bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest, MetadataResponse, TopicName};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use sidestream::app::{App, SharedParts};
use sidestream::clock::WallClock;
use sidestream::config::Config;
use sidestream::diskless_coordinator::command::{Command, TopicConfig};
use sidestream::metadata_log::{EmbeddedLog, LogLocation};
use sidestream::types::TopicId;
use sidestream::wire::{self, StrBytes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub const WAIT: Duration = Duration::from_secs(20);

/// A proxy with its mock upstream.
pub struct World {
    pub app: App,
    _directory: tempfile::TempDir,
    _mock: MockCluster<'static, DefaultProducerContext>,
}

impl World {
    /// Topics "classic" and "diskless", three partitions each.
    pub async fn start() -> Self {
        Self::start_with("").await
    }

    /// The same, with more settings.
    pub async fn start_with(settings: &str) -> Self {
        let mock = MockCluster::new(3).expect("a mock cluster");
        for topic in ["classic", "diskless"] {
            mock.create_topic(topic, 3, 1).expect("a topic");
        }
        let directory = tempfile::tempdir().expect("a directory");
        let servers: Vec<_> = mock.bootstrap_servers().split(',').map(|s| format!("{s:?}")).collect();
        let text = format!(
            r#"
            proxy.id = 7
            proxy.zone = "zone-a"
            listener.advertised.host = "127.0.0.1"
            listener.bootstrap.port = 0
            upstream.bootstrap.servers = [{}]
            metadata.mode = "standalone"
            metadata.directory = "{}"
            store.url = "memory://"
            diskless.authorization = "none"
            admin.bind = "127.0.0.1:0"
            {settings}
            "#,
            servers.join(", "),
            directory.path().display()
        );
        let config = Config::parse(&text, &[], |_| None).expect("a valid configuration");
        let log = EmbeddedLog::open(&LogLocation::Memory, WallClock::system()).expect("a log");
        let shared = SharedParts { log: Some(Arc::new(log)), store: None };
        let app = App::start(config, shared).await.expect("the proxy starts");
        let world = Self { app, _directory: directory, _mock: mock };
        world.register("diskless").await;
        world
    }

    async fn register(&self, name: &str) {
        let proxy = &self.app.proxy;
        let known = sidestream::topic_catalog::shadow::topic(&proxy.cluster, name).await.expect("the mock answers");
        let topic_id = known.map(|t| t.id).filter(|id| !id.is_zero()).unwrap_or(TopicId([9; 16]));
        let pending = Command::PendingTopic { name: name.to_owned() };
        let register = Command::RegisterTopic {
            name: name.to_owned(),
            topic_id,
            partitions: 3,
            leader_epoch: 0,
            config: TopicConfig { version: 1, ..TopicConfig::default() },
        };
        for command in [pending, register] {
            proxy.coordination.submit(command).await.expect("the log takes it");
        }
    }

    pub async fn connect(&self) -> TcpStream {
        let endpoint = &self.app.proxy.endpoint;
        TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await.expect("the listener is open")
    }

    /// One connection to the virtual broker and one to each mapped listener.
    pub async fn every_door(&self) -> Vec<TcpStream> {
        let metadata = self.metadata().await;
        let mut doors = vec![self.connect().await];
        for broker in metadata.brokers.iter().filter(|b| *b.node_id < 100_000) {
            let port = u16::try_from(broker.port).expect("a port");
            doors.push(TcpStream::connect(("127.0.0.1", port)).await.expect("the listener is open"));
        }
        assert_eq!(doors.len(), 4);
        doors
    }

    pub async fn metadata(&self) -> MetadataResponse {
        let mut client = self.connect().await;
        let all = MetadataRequest::default().with_topics(None);
        call(&mut client, 9, &all).await
    }

    pub async fn stop(self) {
        self.app.shutdown().await;
    }
}

pub async fn call<R: kafka_protocol::protocol::Request>(
    client: &mut TcpStream,
    version: i16,
    request: &R,
) -> R::Response {
    let frame = wire::encode_request(5, version, "test", request).expect("it can be encoded");
    client.write_all(&frame).await.expect("the connection is open");
    let answer = read_frame(client).await.expect("an answer");
    let (correlation_id, response) = wire::decode_response_frame::<R>(version, answer).expect("a valid answer");
    assert_eq!(correlation_id, 5);
    response
}

/// The next frame without its length, or nothing at the end of the connection.
pub async fn read_frame(client: &mut TcpStream) -> Option<Bytes> {
    let read = async {
        let length = client.read_i32().await.ok()?;
        let mut frame = vec![0; usize::try_from(length).ok()?];
        client.read_exact(&mut frame).await.ok()?;
        Some(Bytes::from(frame))
    };
    timeout(WAIT, read).await.expect("the proxy answers or closes")
}

/// Whether the proxy ends the connection without a further answer.
pub async fn is_closed(client: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    let ended = timeout(WAIT, client.read_to_end(&mut rest)).await;
    ended.is_ok() && rest.is_empty()
}

/// ApiVersions of a client that names its software, as it must since version 3.
pub fn api_versions() -> ApiVersionsRequest {
    ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("test"))
        .with_client_software_version(StrBytes::from_static_str("1"))
}

pub fn topic_named(name: &str) -> MetadataRequestTopic {
    MetadataRequestTopic::default().with_name(Some(TopicName(StrBytes::from_string(name.to_owned()))))
}
