//! Opens streams to upstream brokers: TCP, and TLS with the host name and the chain verified.
//!
//! Speaks no Kafka: the stream also carries clients' own traffic.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Security;
use crate::types::Endpoint;

/// How long TCP and TLS together may take to connect.
pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The security settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    #[error("cannot read certificates from {file}: {reason}")]
    CaFile { file: String, reason: String },
    #[error("no trusted certificates found: set a CA file, or install the system's")]
    NoRoots,
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// No stream could be opened, so nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot connect to {endpoint}: {source}")]
    Failed { endpoint: Endpoint, source: io::Error },
    #[error("no connection to {endpoint} within {} ms", .after.as_millis())]
    TimedOut { endpoint: Endpoint, after: Duration },
    #[error("{endpoint} is not a name that a certificate can have")]
    BadName { endpoint: Endpoint },
}

/// Opens streams with settings that were read and checked once.
#[derive(Clone)]
pub struct Connector {
    security: Arc<Security>,
    tls: Option<TlsConnector>,
    connect_timeout: Duration,
}

impl Connector {
    /// Reads the certificates to trust.
    pub fn new(security: Security, connect_timeout: Duration) -> Result<Self, SecurityError> {
        let tls = if security.protocol.uses_tls() { Some(tls_connector(&security)?) } else { None };
        Ok(Self { security: Arc::new(security), tls, connect_timeout })
    }

    pub(super) fn security(&self) -> &Security {
        &self.security
    }

    /// A stream to a broker, without SASL.
    pub async fn connect(&self, endpoint: &Endpoint) -> Result<UpstreamStream, ConnectError> {
        match timeout(self.connect_timeout, self.connect_without_limit(endpoint)).await {
            Ok(connected) => connected,
            Err(_) => Err(ConnectError::TimedOut { endpoint: endpoint.clone(), after: self.connect_timeout }),
        }
    }

    async fn connect_without_limit(&self, endpoint: &Endpoint) -> Result<UpstreamStream, ConnectError> {
        let failed = |source| ConnectError::Failed { endpoint: endpoint.clone(), source };
        let tcp = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await.map_err(failed)?;
        tcp.set_nodelay(true).map_err(failed)?;
        let Some(tls) = &self.tls else { return Ok(UpstreamStream::Plain(tcp)) };
        let name = ServerName::try_from(endpoint.host.clone())
            .map_err(|_| ConnectError::BadName { endpoint: endpoint.clone() })?;
        let stream = tls.connect(name, tcp).await.map_err(failed)?;
        Ok(UpstreamStream::Tls(Box::new(stream)))
    }
}

fn tls_connector(security: &Security) -> Result<TlsConnector, SecurityError> {
    let mut roots = RootCertStore::empty();
    match &security.ca_file {
        Some(file) => {
            let bad = |reason: String| SecurityError::CaFile { file: file.display().to_string(), reason };
            for certificate in CertificateDer::pem_file_iter(file).map_err(|e| bad(e.to_string()))? {
                let certificate = certificate.map_err(|e| bad(e.to_string()))?;
                roots.add(certificate).map_err(|e| bad(e.to_string()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(SecurityError::NoRoots);
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A stream to an upstream broker.
#[derive(Debug)]
pub enum UpstreamStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for UpstreamStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for UpstreamStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests;
