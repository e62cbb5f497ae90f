//! Streams against real sockets: dead ports, wrong certificates, wrong protocols.

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::tasks::Tasks;
use crate::upstream::Protocol;

/// An authority that exists for these tests only, and the certificate it gave to "localhost".
const CA: &str = "\
-----BEGIN CERTIFICATE-----
MIIBiTCCAS6gAwIBAgIUTYGVpHpSuxLFbYTU5cmUXlMow3swCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHdGVzdCBjYTAgFw0yNjExMzAxNTUyNThaGA8yMTI2MTEwNjE1
NTI1OFowEjEQMA4GA1UEAwwHdGVzdCBjYTBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABOa8fTJrXWSOU5AAtSbdQ0wuPPqZXGlytm1P1TnmE13OllJnDXvcAZHSeW9d
UONHlCjtGP3/aLlpjuMJ1kIz/t2jYDBeMB0GA1UdDgQWBBQgCr+ieXklEyypR5E2
RgZKGrNzUjAfBgNVHSMEGDAWgBQgCr+ieXklEyypR5E2RgZKGrNzUjAPBgNVHRMB
Af8EBTADAQH/MAsGA1UdDwQEAwICBDAKBggqhkjOPQQDAgNJADBGAiEA0PmkycTU
e8x/KsynDEo41BcBmvSeMwFop0EwHCcTZWUCIQCTCdFSD7a+OerK/ha4NzppiLve
xihrLZvMiADXZxolOw==
-----END CERTIFICATE-----
";
const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBojCCAUigAwIBAgIUAylKUN1c8EIBlIn0xurwGxw6Wq0wCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHdGVzdCBjYTAgFw0yNjExMzAxNTUyNThaGA8yMTI2MTEwNjE1
NTI1OFowFDESMBAGA1UEAwwJbG9jYWxob3N0MFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAEshl5vDSAGCfhlE1XXZAabu88RQ4vYNQDb8taq5txSiNqtaESbHL+KBSU
3vxLgN8cotXwLoWisvc0lcSlPyvDG6N4MHYwFAYDVR0RBA0wC4IJbG9jYWxob3N0
MAkGA1UdEwQCMAAwEwYDVR0lBAwwCgYIKwYBBQUHAwEwHQYDVR0OBBYEFGQgD8Sd
k5aY7KNMMHDnF0odXlIFMB8GA1UdIwQYMBaAFCAKv6J5eSUTLKlHkTZGBkoas3NS
MAoGCCqGSM49BAMCA0gAMEUCIQCPVxGStv7TZW995iwN++Aj/YpkGIrznWahcrU0
Frg39gIgHt3bT0r65KO1iSn16HC6AIAlqw1rXuUHK6eiB6IltR4=
-----END CERTIFICATE-----
";
/// Of no use anywhere else: nothing but these tests trusts it.
const KEY: &str = "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgRzWhl+ETnaE2yLfZ
Z2wXml2BKk6iu29aM4FZXeS8TSihRANCAASyGXm8NIAYJ+GUTVddkBpu7zxFDi9g
1ANvy1qrm3FKI2q1oRJscv4oFJTe/EuA3xyi1fAuhaKy9zSVxKU/K8Mb
-----END PRIVATE KEY-----
";

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

fn endpoint(host: &str, port: u16) -> Endpoint {
    Endpoint { host: host.to_owned(), port }
}

/// A connector that trusts the test's authority.
fn tls(ca: &str) -> Result<Connector, SecurityError> {
    let directory = tempfile::tempdir().expect("a directory");
    let ca_file = directory.path().join("ca.pem");
    std::fs::write(&ca_file, ca).expect("written");
    let security = Security { protocol: Protocol::Ssl, ca_file: Some(ca_file), ..Security::default() };
    Connector::new(security, DEFAULT_CONNECT_TIMEOUT)
}

/// A TLS server that sends back what it gets.
async fn tls_echo(tasks: &Tasks) -> u16 {
    let chain = vec![CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("they belong together");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listener, port) = listen().await;
    tasks.spawn("tls echo", async move {
        while let Ok((tcp, _)) = listener.accept().await {
            // A client that refuses our certificate ends the handshake.
            let Ok(mut stream) = acceptor.accept(tcp).await else { continue };
            let mut bytes = [0; 4];
            if stream.read_exact(&mut bytes).await.is_ok() {
                let _ = stream.write_all(&bytes).await;
                let _ = stream.flush().await;
            }
        }
    });
    port
}

#[tokio::test]
async fn a_port_nobody_listens_on_is_an_error_with_its_name() {
    let (listener, port) = listen().await;
    drop(listener);
    let connector = Connector::new(Security::default(), DEFAULT_CONNECT_TIMEOUT).expect("plaintext");
    let error = connector.connect(&endpoint("127.0.0.1", port)).await.expect_err("nobody listens");
    assert!(error.to_string().contains(&format!("127.0.0.1:{port}")), "{error}");
}

#[tokio::test]
async fn tls_carries_bytes_to_the_host_that_the_certificate_names() {
    let (tasks, _) = Tasks::new();
    let port = tls_echo(&tasks).await;
    let mut stream = tls(CA).expect("trusts").connect(&endpoint("localhost", port)).await.expect("connects");
    stream.write_all(b"ping").await.expect("writes");
    stream.flush().await.expect("flushes");
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).await.expect("reads");
    assert_eq!(&bytes, b"ping");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let (tasks, _) = Tasks::new();
    let port = tls_echo(&tasks).await;
    let wrong_host = tls(CA).expect("trusts").connect(&endpoint("127.0.0.1", port)).await;
    assert!(matches!(wrong_host, Err(ConnectError::Failed { .. })));
}

#[tokio::test]
async fn a_peer_that_never_answers_the_handshake_times_out() {
    let (_listener, port) = listen().await;
    let mut connector = tls(CA).expect("trusts");
    connector.connect_timeout = Duration::from_millis(100);
    let error = connector.connect(&endpoint("localhost", port)).await.expect_err("silence");
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
}

#[test]
fn a_ca_file_that_is_missing_or_empty_is_refused() {
    let security =
        Security { protocol: Protocol::Ssl, ca_file: Some("no/such/file.pem".into()), ..Security::default() };
    let error = Connector::new(security, DEFAULT_CONNECT_TIMEOUT).err().expect("there is none");
    assert!(error.to_string().contains("no/such/file.pem"), "{error}");
    assert!(matches!(tls(""), Err(SecurityError::NoRoots)));
}
