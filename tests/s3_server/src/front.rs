//! Stands before the S3 service: has faults judged, carries them out, and logs what became of each request.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RANGE};
use hyper::{Method, Request, Response, StatusCode};
use s3s::service::S3Service;
use s3s::{Body, HttpError, HttpResponse};

use crate::faults::{Fault, Faults};
use crate::request_log::{Entry, RequestLog};

/// How old a listing is to be; travels with the request to whoever lists.
#[derive(Clone, Copy)]
pub(crate) struct Staleness(pub(crate) Duration);

pub(crate) struct Front {
    service: S3Service,
    faults: Faults,
    log: RequestLog,
}

impl Front {
    pub(crate) fn new(service: S3Service, faults: Faults, log: RequestLog) -> Self {
        Self { service, faults, log }
    }

    pub(crate) async fn answer(&self, mut request: Request<Incoming>) -> Result<HttpResponse, HttpError> {
        let (operation, key) = asked(&request);
        let mut entry = self.log.begin(operation, key);
        entry.bytes = request.body().size_hint().exact().unwrap_or(0);
        entry.range = request.headers().get(RANGE).and_then(|range| range.to_str().ok()).map(str::to_owned);
        let verdict = self.faults.judge(operation, &entry.key);
        entry.faults = verdict.names;
        tokio::time::sleep(verdict.delay).await;
        match verdict.fault {
            Some(Fault::SlowDown) => {
                // An answer before the body is read would look like a broken connection, which is another fault.
                let _ = request.into_body().collect().await;
                return Ok(told(&mut entry, StatusCode::SERVICE_UNAVAILABLE, "SlowDown"));
            }
            Some(Fault::StuckBefore) => std::future::pending().await,
            Some(Fault::StaleList(millis)) => {
                request.extensions_mut().insert(Staleness(Duration::from_millis(millis)));
            }
            _ => {}
        }
        let response = self.service.call(request.map(Body::from)).await?;
        entry.done = response.status().is_success();
        match verdict.fault {
            Some(Fault::ErrorAfter) => Ok(told(&mut entry, StatusCode::INTERNAL_SERVER_ERROR, "InternalError")),
            Some(Fault::StuckAfter) => std::future::pending().await,
            Some(fault @ (Fault::Reset | Fault::Truncate)) => shortened(&mut entry, response, fault).await,
            _ => {
                entry.status = Some(response.status().as_u16());
                if operation != "put" {
                    entry.bytes = response.body().size_hint().exact().unwrap_or(0);
                }
                Ok(response)
            }
        }
    }
}

/// What a path-style request wants, and of which key.
fn asked(request: &Request<Incoming>) -> (&'static str, String) {
    let path = request.uri().path().trim_start_matches('/');
    let (_, key) = path.split_once('/').unwrap_or((path, ""));
    let operation = match (request.method(), key.is_empty()) {
        (&Method::PUT, false) => "put",
        (&Method::GET, false) => "get",
        (&Method::HEAD, _) => "head",
        (&Method::GET, true) => "list",
        (&Method::DELETE, _) | (&Method::POST, true) => "delete",
        _ => "other",
    };
    (operation, percent_encoding::percent_decode_str(key).decode_utf8_lossy().into_owned())
}

/// An error in S3's form.
fn told(entry: &mut Entry, status: StatusCode, code: &str) -> HttpResponse {
    entry.status = Some(status.as_u16());
    let text = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>by a rule</Message></Error>");
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}

/// Half of a body: with the connection cut behind it, or as if it were all.
async fn shortened(entry: &mut Entry, response: HttpResponse, fault: Fault) -> Result<HttpResponse, HttpError> {
    let (mut head, body) = response.into_parts();
    let whole = body.collect().await.map_err(HttpError::new)?.to_bytes();
    let half = whole.slice(..whole.len() / 2);
    entry.status = Some(head.status.as_u16());
    entry.bytes = half.len() as u64;
    if fault == Fault::Truncate {
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(half.len()));
        return Ok(Response::from_parts(head, Body::from(half)));
    }
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(whole.len()));
    let frames: [Result<Frame<Bytes>, std::io::Error>; 2] =
        [Ok(Frame::data(half)), Err(std::io::ErrorKind::ConnectionReset.into())];
    Ok(Response::from_parts(head, Body::http_body(StreamBody::new(stream::iter(frames)))))
}
