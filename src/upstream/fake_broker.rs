//! A scripted broker on a loopback socket, for tests: each request frame goes to a function that says what happens.

use bytes::Bytes;
use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::frame_io::read_request_frame;
use crate::tasks::Tasks;
use crate::types::Endpoint;
use crate::wire::frame::{RequestHeader, parse_request_header};
use crate::wire::{encode_response, frame::DEFAULT_MAX_FRAME_BYTES};

/// What the fake does with a request.
pub(super) enum Act {
    /// Sends these bytes.
    Answer(Bytes),
    /// Takes the request and says nothing.
    Silence,
    /// Closes the connection.
    Close,
}

/// A request as the fake got it.
pub(super) struct Asked {
    pub(super) header: RequestHeader,
    pub(super) body: Bytes,
}

impl Asked {
    /// An answer to this request.
    pub(super) fn answer<T: kafka_protocol::protocol::Request>(&self, response: &T::Response) -> Act {
        let header = &self.header;
        Act::Answer(encode_response::<T>(header.correlation_id, header.api_version, response).expect("encodes"))
    }
}

/// Runs a fake broker until the tasks stop, and says where it listens.
pub(super) async fn start(tasks: &Tasks, script: impl Fn(&Asked) -> Act + Clone + Send + Sync + 'static) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let all = tasks.clone();
    let stop = tasks.stop_token();
    tasks.spawn("fake broker", async move {
        while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
            let (script, stop) = (script.clone(), stop.clone());
            all.spawn_bounded("fake broker connection", async move {
                stop.run_until_cancelled(serve(stream, script)).await;
            });
        }
    });
    Endpoint { host: "127.0.0.1".to_owned(), port }
}

async fn serve(mut stream: TcpStream, script: impl Fn(&Asked) -> Act) {
    while let Ok(Some(frame)) = read_request_frame(&mut stream, DEFAULT_MAX_FRAME_BYTES).await {
        let header = parse_request_header(&frame).expect("our own requests are well-formed");
        let asked = Asked { body: frame.slice(header.body_start..), header };
        match script(&asked) {
            Act::Answer(answer) => stream.write_all(&answer).await.expect("the test still listens"),
            Act::Silence => {}
            Act::Close => return,
        }
    }
}

/// Offers these keys in these versions.
pub(super) fn offers(keys: &[(i16, i16, i16)]) -> ApiVersionsResponse {
    let key = |(key, min, max): &(i16, i16, i16)| {
        ApiVersion::default().with_api_key(*key).with_min_version(*min).with_max_version(*max)
    };
    ApiVersionsResponse::default().with_api_keys(keys.iter().map(key).collect())
}
