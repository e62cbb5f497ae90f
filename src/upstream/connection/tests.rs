//! A connection against a scripted broker: what is known about a request when something goes wrong.

use bytes::{BufMut as _, BytesMut};
use kafka_protocol::messages::{
    DescribeClusterRequest, DescribeClusterResponse, SaslAuthenticateRequest, SaslAuthenticateResponse,
    SaslHandshakeRequest, SaslHandshakeResponse,
};

use super::*;
use crate::upstream::fake_broker::{Act, Asked, offers, start};
use crate::upstream::{Mechanism, Protocol, Secret, Security};
use crate::wire::api_versions::unsupported_version_answer;
use crate::wire::{decode_request, encode_response};

const API_VERSIONS: i16 = 18;
const OFFERED: &[(i16, i16, i16)] = &[(60, 0, 2), (17, 0, 1), (36, 0, 2)];

fn versions(asked: &Asked) -> Option<Act> {
    (asked.header.api_key == API_VERSIONS).then(|| asked.answer::<ApiVersionsRequest>(&offers(OFFERED)))
}

fn connector(security: Security) -> Connector {
    Connector::new(security, Duration::from_secs(5)).expect("plaintext")
}

async fn open(
    security: Security,
    settings: Settings,
    script: impl Fn(&Asked) -> Act + Clone + Send + Sync + 'static,
) -> (Result<Connection, UpstreamError>, Tasks) {
    let (tasks, _) = Tasks::new();
    let endpoint = start(&tasks, script).await;
    (Connection::open(&connector(security), &endpoint, settings, &tasks).await, tasks)
}

async fn plain(script: impl Fn(&Asked) -> Act + Clone + Send + Sync + 'static) -> (Connection, Tasks) {
    let settings = Settings { request_timeout: Duration::from_secs(20), ..Settings::default() };
    let (connection, tasks) = open(Security::default(), settings, script).await;
    (connection.expect("opens"), tasks)
}

fn named(name: &str) -> DescribeClusterResponse {
    DescribeClusterResponse::default().with_cluster_id(StrBytes::from_string(name.to_owned()))
}

#[tokio::test]
async fn many_requests_are_in_flight_and_answered_in_order() {
    let (connection, _tasks) = plain(|asked| {
        versions(asked)
            .unwrap_or_else(|| asked.answer::<DescribeClusterRequest>(&named(&asked.header.correlation_id.to_string())))
    })
    .await;
    let request = DescribeClusterRequest::default();
    let asked = (0..50).map(|_| connection.request(&request, 1));
    let mut answered: Vec<i32> = futures::future::join_all(asked)
        .await
        .into_iter()
        .map(|answer| answer.expect("answered").cluster_id.parse().expect("a correlation id"))
        .collect();
    answered.sort_unstable();
    answered.dedup();
    assert_eq!(answered.len(), 50, "each request got the answer to itself");
    assert!(connection.is_usable());
}

#[tokio::test]
async fn a_close_after_the_request_leaves_its_outcome_unknown() {
    let (connection, _tasks) = plain(|asked| versions(asked).unwrap_or(Act::Close)).await;
    let error = connection.request(&DescribeClusterRequest::default(), 1).await.expect_err("closed");
    assert!(error.may_have_been_carried_out(), "{error}");
    let error = connection.request(&DescribeClusterRequest::default(), 1).await.expect_err("poisoned");
    assert!(!error.may_have_been_carried_out(), "{error}");
    assert!(!connection.is_usable());
}

#[tokio::test]
async fn a_broken_greeting_is_not_a_sent_request() {
    let (connection, _tasks) = open(Security::default(), Settings::default(), |_| Act::Close).await;
    let error = connection.err().expect("closed");
    assert!(!error.may_have_been_carried_out(), "{error}");
}

#[tokio::test]
async fn a_missing_answer_is_unknown_and_poisons() {
    let settings = Settings { request_timeout: Duration::from_secs(1), ..Settings::default() };
    let script = |asked: &Asked| versions(asked).unwrap_or(Act::Silence);
    let (connection, _tasks) = open(Security::default(), settings, script).await;
    let connection = connection.expect("opens");
    let error = connection.request(&DescribeClusterRequest::default(), 1).await.expect_err("silence");
    assert!(error.may_have_been_carried_out(), "{error}");
    assert!(!connection.is_usable());
}

#[tokio::test]
async fn answers_out_of_order_or_over_the_limit_or_unreadable_poison() {
    fn wrong_id(asked: &Asked) -> Bytes {
        let id = asked.header.correlation_id + 1;
        encode_response::<DescribeClusterRequest>(id, 1, &named("x")).expect("encodes")
    }
    fn too_large(_: &Asked) -> Bytes {
        Bytes::from_static(&[0x7f, 0, 0, 0])
    }
    fn unreadable(asked: &Asked) -> Bytes {
        let mut frame = BytesMut::new();
        frame.put_i32(9);
        frame.put_i32(asked.header.correlation_id);
        frame.put_slice(&[0, 0xff, 0xff, 0xff, 0x7f]);
        frame.freeze()
    }
    for bad in [wrong_id, too_large, unreadable] {
        let (connection, _tasks) = plain(move |asked| versions(asked).unwrap_or_else(|| Act::Answer(bad(asked)))).await;
        let error = connection.request(&DescribeClusterRequest::default(), 1).await.expect_err("a bad answer");
        assert!(error.may_have_been_carried_out(), "{error}");
        assert!(!connection.is_usable());
    }
}

#[tokio::test]
async fn an_older_broker_is_asked_again_in_version_0() {
    let (connection, _tasks) = plain(|asked| match asked.header.api_version {
        3 | 4 => Act::Answer(unsupported_version_answer(asked.header.correlation_id)),
        _ => asked.answer::<ApiVersionsRequest>(&offers(OFFERED)),
    })
    .await;
    assert_eq!(connection.api_versions().api_keys.len(), 3);
    assert_eq!(connection.highest_version::<DescribeClusterRequest>(1), Ok(1));
    assert!(connection.highest_version::<kafka_protocol::messages::MetadataRequest>(12).is_err(), "not offered");
}

#[tokio::test]
async fn bytes_behind_the_versions_are_tolerated() {
    let (connection, _tasks) = plain(|asked| {
        let id = asked.header.correlation_id;
        let frame = encode_response::<ApiVersionsRequest>(id, asked.header.api_version, &offers(OFFERED));
        let mut frame = BytesMut::from(&frame.expect("encodes")[..]);
        frame.put_u8(0);
        let length = u32::try_from(frame.len() - 4).expect("small");
        frame[..4].copy_from_slice(&length.to_be_bytes());
        Act::Answer(frame.freeze())
    })
    .await;
    assert_eq!(connection.api_versions().api_keys.len(), 3);
}

fn sasl(mechanism: Mechanism) -> Security {
    Security {
        protocol: Protocol::SaslPlaintext,
        mechanism,
        username: "proxy".to_owned(),
        password: Secret::new("hunter2"),
        ca_file: None,
    }
}

fn plain_login(asked: &Asked) -> Act {
    match asked.header.api_key {
        17 => asked.answer::<SaslHandshakeRequest>(&SaslHandshakeResponse::default()),
        36 => {
            let request: SaslAuthenticateRequest =
                decode_request(asked.header.api_version, asked.body.clone()).expect("decodes");
            let good = &request.auth_bytes[..] == b"\0proxy\0hunter2";
            let answer = SaslAuthenticateResponse::default().with_error_code(if good { 0 } else { 58 });
            asked.answer::<SaslAuthenticateRequest>(&answer.with_session_lifetime_ms(60_000))
        }
        _ => versions(asked).unwrap_or(Act::Close),
    }
}

#[tokio::test]
async fn plain_logs_in_and_remembers_the_sessions_end() {
    let (connection, _tasks) = open(sasl(Mechanism::Plain), Settings::default(), plain_login).await;
    let connection = connection.expect("logs in");
    assert!(connection.session_ends.is_some() && connection.is_usable());
}

#[tokio::test]
async fn a_refused_login_names_the_reason_and_no_password() {
    let mut security = sasl(Mechanism::Plain);
    security.password = Secret::new("wrong-password");
    let (connection, _tasks) = open(security, Settings::default(), plain_login).await;
    let error = connection.err().expect("refused").to_string();
    assert!(error.contains("58") && !error.contains("wrong-password"), "{error}");
}

#[tokio::test]
async fn a_server_that_cannot_prove_itself_is_refused() {
    let (connection, _tasks) = open(sasl(Mechanism::ScramSha256), Settings::default(), |asked| {
        match asked.header.api_key {
            // Takes anything, and sends back the client's own message.
            36 => {
                let request: SaslAuthenticateRequest =
                    decode_request(asked.header.api_version, asked.body.clone()).expect("decodes");
                let answer = SaslAuthenticateResponse::default().with_auth_bytes(request.auth_bytes);
                asked.answer::<SaslAuthenticateRequest>(&answer)
            }
            _ => plain_login(asked),
        }
    })
    .await;
    let error = connection.err().expect("refused");
    assert!(error.to_string().contains("SCRAM"), "{error}");
}

#[tokio::test]
async fn stopping_the_tasks_ends_a_waiting_request() {
    let (connection, tasks) = plain(|asked| versions(asked).unwrap_or(Act::Silence)).await;
    let request = DescribeClusterRequest::default();
    let waiting = connection.request(&request, 1);
    let (answer, stopped) = tokio::join!(waiting, tasks.stop_and_join(Duration::from_secs(10)));
    assert!(answer.is_err());
    assert!(stopped.is_ok());
}
