//! Asks a running proxy's REST API.

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Request;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::types::Endpoint;

const LARGEST_ANSWER: usize = 64 * 1024 * 1024;

/// The JSON at a path.
pub(super) async fn get(admin: &Endpoint, path: &str) -> anyhow::Result<Value> {
    let unreachable = || {
        format!(
            "no proxy answers on {admin}: start one with `sidestream run`, or name its admin.bind address with --admin"
        )
    };
    let socket = TcpStream::connect((admin.host.as_str(), admin.port)).await.with_context(unreachable)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.with_context(unreachable)?;
    let request = Request::get(path).header("host", admin.to_string()).body(Empty::<Bytes>::new())?;
    let ask = async {
        let response = sender.send_request(request).await.with_context(unreachable)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
        let body = body.map_err(|e| anyhow::anyhow!("the proxy's answer broke off: {e}"))?.to_bytes();
        anyhow::Ok((status, body))
    };
    // The connection runs beside the request and ends with it.
    let (status, body) = tokio::select! {
        answer = ask => answer?,
        ended = connection => {
            ended.with_context(unreachable)?;
            bail!("{admin} closed the connection")
        }
    };
    let value: Value =
        serde_json::from_slice(&body).context("the answer is not JSON: is this a Sidestream admin port?")?;
    if !status.is_success() {
        bail!("{}", value["message"].as_str().unwrap_or("the proxy refused the request"));
    }
    Ok(value)
}
