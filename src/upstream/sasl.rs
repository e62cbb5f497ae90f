//! Logs the proxy's own connection in: SaslHandshake, then the mechanism's messages in SaslAuthenticate.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest};

use super::connection::{Connection, UpstreamError};
use super::scram::{Hash, Scram, ScramError};
use super::{Mechanism, Security};
use crate::wire::StrBytes;

/// Logs in. Says how long the session lasts, where the broker limits that (KIP-368).
pub(super) async fn authenticate(
    connection: &Connection,
    security: &Security,
) -> Result<Option<Duration>, UpstreamError> {
    let name = security.mechanism.name();
    let request = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str(name));
    let answer = connection.request(&request, 1).await?;
    if answer.error_code != 0 {
        return Err(connection.not_sent(format!("the broker does not offer SASL mechanism {name}")));
    }
    let last = match security.mechanism {
        Mechanism::Plain => {
            let message = format!("\0{}\0{}", security.username, security.password.reveal());
            send(connection, message.into_bytes()).await?
        }
        Mechanism::ScramSha256 => scram(connection, security, Hash::Sha256).await?,
        Mechanism::ScramSha512 => scram(connection, security, Hash::Sha512).await?,
    };
    let lifetime = u64::try_from(last.session_lifetime_ms).unwrap_or(0);
    Ok((lifetime > 0).then(|| Duration::from_millis(lifetime)))
}

async fn scram(
    connection: &Connection,
    security: &Security,
    hash: Hash,
) -> Result<SaslAuthenticateResponse, UpstreamError> {
    let failed = |error: ScramError| connection.not_sent(error.to_string());
    let nonce = STANDARD_NO_PAD.encode(rand::random::<[u8; 24]>());
    let exchange = Scram::new(hash, &security.username, security.password.reveal(), nonce);
    let first = send(connection, exchange.first_message()).await?;
    let (proof, proven) = exchange.prove(&first.auth_bytes).map_err(failed)?;
    let last = send(connection, proof).await?;
    proven.finish(&last.auth_bytes).map_err(failed)?;
    Ok(last)
}

async fn send(connection: &Connection, message: Vec<u8>) -> Result<SaslAuthenticateResponse, UpstreamError> {
    let request = SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from(message));
    let version = connection.highest_version::<SaslAuthenticateRequest>(2)?;
    let answer = connection.request(&request, version).await?;
    if answer.error_code != 0 {
        // The broker's own text names the user at most; it is Kafka's "Authentication failed: ...".
        let text = answer.error_message.as_deref().unwrap_or("authentication failed");
        return Err(connection.not_sent(format!("{text} (error {})", answer.error_code)));
    }
    Ok(answer)
}
