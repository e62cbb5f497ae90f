//! Authentication: relayed on the client's own upstream connection, so that every mechanism that signs no host name
//! works unchanged and upstream knows who the client is.

use kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};

use crate::kafka_server::dispatch::{HandleError, Incoming, Refused, Reply};
use crate::kafka_server::session::Session;

pub(crate) async fn handshake(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    if request.version() == 0 {
        return Err(Refused::SaslHandshakeV0.into());
    }
    let handshake: SaslHandshakeRequest = request.decode()?;
    let response = session.call(request.version(), &request.client_id(), &handshake).await?;
    request.answer::<SaslHandshakeRequest>(&response)
}

/// How many tokens an exchange takes is the mechanism's secret, so an accepted one proves nothing yet: the first other
/// request makes us ask upstream something (`Session::confirm_authentication`), which it answers only to a client that
/// is through.
pub(crate) async fn authenticate(session: &mut Session, request: &Incoming) -> Result<Reply, HandleError> {
    let token: SaslAuthenticateRequest = request.decode()?;
    let response = session.call(request.version(), &request.client_id(), &token).await?;
    session.token_accepted = response.error_code == 0;
    // Where nobody authenticates, upstream refuses the token and serves on, and so do we.
    if session.proxy.config.listener.sasl {
        session.authenticated &= session.token_accepted;
    }
    request.answer::<SaslAuthenticateRequest>(&response)
}
