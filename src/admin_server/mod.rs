//! The admin listener: health, metrics, and a REST API for reading in the manner of Kafka Connect.
//!
//! - `GET /live`: the process answers
//! - `GET /ready`: diskless topics are served; else 503 and why not
//! - `GET /metrics`: Prometheus text
//! - `GET /`: version and ids
//! - `GET /proxies`: all proxies that the log knows
//! - `GET /state`: what came of the metadata log, in numbers
//! - `GET /topics`: the names of diskless topics; `/topics?expand=info`: all topics of both kinds, with what is known
//! - `GET /topics/{name}`, `/topics/{name}/partitions`: one diskless topic
//!
//! Read only, and on loopback unless configured otherwise. Errors are `{"error_code", "message"}`.

mod exposition;
mod metrics;
mod rest;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::coordination::{Coordination, Status};
use crate::kafka_server::Proxy;
use crate::object_storage::ObjectStorage;
use crate::object_storage::zone_cache::ZoneCache;
use crate::topic_catalog::StrayStats;

/// What the admin server shows.
pub struct Sources {
    pub proxy: Arc<Proxy>,
    pub store: ObjectStorage,
    pub cache: Arc<ZoneCache>,
    pub strays: Arc<StrayStats>,
}

/// A bound admin port that is not served yet.
pub struct AdminListener {
    socket: TcpListener,
}

const MOST_CONNECTIONS: usize = 64;
const HEADER_DEADLINE: Duration = Duration::from_secs(10);

impl AdminListener {
    pub async fn bind(host: &str, port: u16) -> io::Result<Self> {
        Ok(Self { socket: TcpListener::bind((host, port)).await? })
    }

    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until told to stop.
    pub async fn serve(self, sources: Arc<Sources>, stop: CancellationToken) {
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = self.socket.accept() => accepted,
            };
            let Ok((socket, _)) = accepted else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
            let (sources, stop) = (Arc::clone(&sources), stop.clone());
            let tasks = sources.proxy.tasks.clone();
            tasks.spawn_bounded("admin connection", async move {
                let _place = place;
                let service = service_fn(move |request| {
                    let sources = Arc::clone(&sources);
                    async move { Ok::<_, Infallible>(answer(&sources, &request).await) }
                });
                let mut server = hyper::server::conn::http1::Builder::new();
                server.timer(TokioTimer::new()).header_read_timeout(HEADER_DEADLINE);
                let connection = server.serve_connection(TokioIo::new(socket), service);
                tokio::select! {
                    () = stop.cancelled() => {}
                    // A client that breaks off has had what it wanted.
                    _ = connection => {}
                }
            });
        }
    }
}

async fn answer(sources: &Sources, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return error(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here");
    }
    let path: Vec<&str> = request.uri().path().split('/').skip(1).collect();
    match path.as_slice() {
        [""] => json(&rest::root(sources)),
        ["live"] => text("ok\n"),
        ["ready"] => match not_serving_because(&sources.proxy.coordination) {
            None => text("ready\n"),
            Some(reason) => error(StatusCode::SERVICE_UNAVAILABLE, &reason),
        },
        ["metrics"] => match metrics::render(sources) {
            Ok(body) => respond(StatusCode::OK, "text/plain; version=0.0.4", body.into()),
            Err(problem) => error(StatusCode::INTERNAL_SERVER_ERROR, &problem.to_string()),
        },
        ["proxies"] => json(&rest::proxies(sources)),
        ["state"] => json(&rest::state(sources)),
        ["topics"] if request.uri().query() == Some("expand=info") => match rest::all_topics(sources).await {
            Ok(topics) => json(&topics),
            Err(problem) => {
                error(StatusCode::BAD_GATEWAY, &format!("upstream cannot be asked for its topics: {problem}"))
            }
        },
        ["topics"] => json(&rest::topics(sources)),
        ["topics", name] => found(rest::topic(sources, name), name),
        ["topics", name, "partitions"] => found(rest::partitions(sources, name), name),
        _ => error(StatusCode::NOT_FOUND, "there is nothing at this path; see / for what is"),
    }
}

/// Why diskless topics are not served at present.
fn not_serving_because(coordination: &Coordination) -> Option<String> {
    match &*coordination.status().borrow() {
        Status::Serving => None,
        Status::Starting => Some("the metadata log is being followed up to its end".to_owned()),
        Status::Stopped => Some("this proxy is stopping".to_owned()),
        Status::Fenced(reason) | Status::Failed(reason) => Some(reason.clone()),
    }
}

fn found(value: Option<serde_json::Value>, name: &str) -> Response<Full<Bytes>> {
    match value {
        Some(value) => json(&value),
        None => error(StatusCode::NOT_FOUND, &format!("no diskless topic is named {name:?}")),
    }
}

fn error(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    let body = serde_json::json!({"error_code": status.as_u16(), "message": message});
    respond(status, "application/json", body.to_string().into())
}

fn json(value: &serde_json::Value) -> Response<Full<Bytes>> {
    respond(StatusCode::OK, "application/json", value.to_string().into())
}

fn text(body: &'static str) -> Response<Full<Bytes>> {
    respond(StatusCode::OK, "text/plain", body.into())
}

fn respond(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
