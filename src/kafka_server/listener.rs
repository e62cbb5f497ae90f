//! Accepting connections, in plaintext or TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::Proxy;
use super::connection;
use super::halves::{self, ReadHalf, WriteHalf};
use super::session::Door;
use crate::config::ListenerTls;

/// A bound port that is not served yet.
pub struct Listener {
    socket: TcpListener,
}

impl Listener {
    /// Port 0 takes a free one.
    pub async fn bind(host: &str, port: u16) -> io::Result<Self> {
        Ok(Self { socket: TcpListener::bind((host, port)).await? })
    }

    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts until told to stop.
    pub async fn serve(self, proxy: Arc<Proxy>, door: Door, stop: CancellationToken) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((socket, peer)) => admit(&proxy, door, socket, peer),
                Err(error) => {
                    // Out of descriptors, most likely: those in use must be given back first.
                    tracing::warn!(%error, "a connection could not be accepted; raise the limit of open files if this goes on");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// How connections are begun, and how many there may be.
pub struct Acceptor {
    tls: Option<TlsAcceptor>,
    connections: Arc<Semaphore>,
}

/// The certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{file}: {problem}; it must be a PEM file")]
    File { file: String, problem: String },
    #[error("the certificate and key do not work together: {0}")]
    Pair(#[from] rustls::Error),
}

impl Acceptor {
    pub fn new(tls: Option<&ListenerTls>, max_connections: usize) -> Result<Self, TlsError> {
        let tls = tls.map(server_tls).transpose()?;
        Ok(Self { tls, connections: Arc::new(Semaphore::new(max_connections)) })
    }
}

fn server_tls(files: &ListenerTls) -> Result<TlsAcceptor, TlsError> {
    let bad = |file: &std::path::Path, problem: String| TlsError::File { file: file.display().to_string(), problem };
    let certificates = CertificateDer::pem_file_iter(&files.certificate_file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| bad(&files.certificate_file, e.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(&files.key_file).map_err(|e| bad(&files.key_file, e.to_string()))?;
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

const TLS_DEADLINE: Duration = Duration::from_secs(10);

fn admit(proxy: &Arc<Proxy>, door: Door, socket: TcpStream, peer: SocketAddr) {
    let Ok(permit) = Arc::clone(&proxy.acceptor.connections).try_acquire_owned() else {
        proxy.stats.connections_refused();
        tracing::warn!(%peer, "refused a connection: listener.max.connections is reached");
        return;
    };
    let counted = proxy.stats.connection_opened();
    let proxy = Arc::clone(proxy);
    let tasks = proxy.tasks.clone();
    tasks.spawn_bounded("client connection", async move {
        let _held = (permit, counted);
        match begin(&proxy.acceptor, socket).await {
            Ok((read, write)) => connection::serve(proxy, door, read, write).await,
            Err(error) => tracing::debug!(%peer, %error, "a connection ended before its first request"),
        }
    });
}

async fn begin(acceptor: &Acceptor, socket: TcpStream) -> io::Result<(ReadHalf, WriteHalf)> {
    // Small answers must not wait for the acknowledgement of the one before.
    socket.set_nodelay(true)?;
    let Some(tls) = &acceptor.tls else {
        return Ok(halves::of_tcp(socket));
    };
    let accepted = tokio::time::timeout(TLS_DEADLINE, tls.accept(socket)).await;
    let stream = accepted.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    Ok(halves::of_stream(stream))
}
