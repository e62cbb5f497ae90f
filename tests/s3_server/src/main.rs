//! An S3 server for tests, on loopback: objects in memory or below a directory, faults on demand, every request in a log.
//!
//! It prints one JSON line, `{"port": ...}`, when it serves, and runs until it is ended. The key pair comes from
//! `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`; requests that are not signed with it are refused.

mod faults;
mod front;
mod objects;
mod request_log;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::net::TcpListener;

use crate::faults::Faults;
use crate::front::Front;
use crate::objects::Objects;
use crate::request_log::RequestLog;

const USAGE: &str = "sidestream-s3-server [--port N] [--bucket NAME] [--directory DIR] [--rules FILE] [--log FILE]

  --port       on 127.0.0.1; a free one where absent
  --bucket     the one bucket (default sidestream)
  --directory  where objects are kept, and found again after a restart; in memory where absent
  --rules      a JSON file of faults, reread when it changes; see src/faults.rs
  --log        a file for one JSON line a request";

struct Arguments {
    port: u16,
    bucket: String,
    directory: Option<PathBuf>,
    rules: Option<PathBuf>,
    log: Option<PathBuf>,
}

fn arguments() -> Result<Arguments, lexopt::Error> {
    use lexopt::prelude::{Long, ValueExt};
    let mut read = Arguments { port: 0, bucket: "sidestream".to_owned(), directory: None, rules: None, log: None };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("port") => read.port = parser.value()?.parse()?,
            Long("bucket") => read.bucket = parser.value()?.string()?,
            Long("directory") => read.directory = Some(parser.value()?.into()),
            Long("rules") => read.rules = Some(parser.value()?.into()),
            Long("log") => read.log = Some(parser.value()?.into()),
            Long("help") => {
                println!("{USAGE}");
                std::process::exit(0);
            }
            other => return Err(other.unexpected()),
        }
    }
    Ok(read)
}

fn environment(name: &str) -> Result<String, Box<dyn std::error::Error>> {
    std::env::var(name).map_err(|_| format!("{name} is not set: requests are checked against this key pair").into())
}

async fn serve(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let objects = Objects::open(arguments.bucket, arguments.directory)?;
    let mut service = S3ServiceBuilder::new(objects);
    service.set_auth(SimpleAuth::from_single(environment("AWS_ACCESS_KEY_ID")?, environment("AWS_SECRET_ACCESS_KEY")?));
    let faults = Faults::new(arguments.rules);
    let front = Arc::new(Front::new(service.build(), faults, RequestLog::open(arguments.log)?));
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port))).await?;
    println!("{{\"port\": {}}}", listener.local_addr()?.port());
    loop {
        let (connection, _) = listener.accept().await?;
        connection.set_nodelay(true)?;
        let front = Arc::clone(&front);
        tokio::spawn(async move {
            let service = hyper::service::service_fn(|request| front.answer(request));
            // A client that goes away, or a connection that a fault has cut: both are what this is for.
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(connection), service)
                .await;
        });
    }
}

#[tokio::main]
async fn main() {
    let arguments = arguments().unwrap_or_else(|error| {
        eprintln!("{error}\n\n{USAGE}");
        std::process::exit(64);
    });
    if let Err(error) = serve(arguments).await {
        eprintln!("the S3 server ends: {error}");
        std::process::exit(1);
    }
}
