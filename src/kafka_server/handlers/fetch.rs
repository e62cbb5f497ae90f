//! Fetch: diskless partitions are served here, classic ones by the mapped broker.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::clock::wall_time_ms;
use crate::diskless_coordinator::view::{Bounds, Topic, Topics};
use crate::fetch::{self, AnsweredPartition, FetchContext, WantedPartition};
use crate::kafka_server::answers::Answer;
use crate::kafka_server::authorization::Operation;
use crate::kafka_server::dispatch::{HandleError, Incoming, Refused, Reply};
use crate::kafka_server::session::{Door, Session};
use crate::types::ErrorCode;
use crate::wire::TopicRef;
use crate::wire::fetch_request::FetchRequest;
use crate::wire::fetch_response::{FetchPartitionResponse, FetchResponse, FetchTopicResponse};

const READ_COMMITTED: i8 = 1;
/// Clients ask for half a second; nobody may hold a connection for longer than this.
const LONGEST_WAIT_MS: i32 = 60_000;

pub(crate) async fn fetch(session: &mut Session, request: Incoming) -> Result<Reply, HandleError> {
    let asked = FetchRequest::read(request.version(), &request.body())?;
    if asked.replica_id >= 0 {
        return Err(Refused::FetchAsReplica.into());
    }
    match session.door {
        Door::Mapped { .. } => Ok(pass_or_redirect(session, &request, &asked)),
        Door::VirtualBroker => serve(session, &request, &asked).await,
    }
}

fn is_withheld(session: &Session, topics: &Topics, topic: &TopicRef) -> bool {
    match topic {
        TopicRef::Name(name) => session.proxy.catalog.is_withheld(name),
        TopicRef::Id(id) => topics.by_id.contains_key(id) || session.proxy.catalog.is_metadata_topic_id(*id),
    }
}

/// A fetch of classic partitions goes on to the broker, with our zone where the client named none, so that an in-zone
/// replica can answer it (KIP-392). One that names a diskless partition came on old metadata.
///
/// Kafka answers a Fetch with a rack by naming another replica, without records. A client that had asked for no such
/// thing may not look there, asks the leader again, and never gets a record. So our zone goes only to libraries that are
/// known to look.
fn pass_or_redirect(session: &Session, request: &Incoming, asked: &FetchRequest) -> Reply {
    let topics = session.proxy.coordination.view().topics();
    if asked.topics.iter().any(|t| is_withheld(session, &topics, &t.topic)) {
        let response = refuse_all(asked, ErrorCode::NotLeaderOrFollower);
        return Reply::Now(Answer::Frame(response.encode(request.header.correlation_id, request.version())));
    }
    if session.proxy.config.listener.fetch_rack && session.looks_at_named_replicas {
        let zone = &session.proxy.config.proxy.zone;
        if let Some(body) = asked.with_rack(&request.body(), request.version(), zone) {
            return Reply::Forward(reframe(&request.frame[..request.header.body_start], &body));
        }
    }
    request.forward()
}

/// A whole frame from a request's header and another body.
fn reframe(header: &[u8], body: &[u8]) -> Bytes {
    let length = u32::try_from(header.len() + body.len()).unwrap_or(u32::MAX);
    let mut frame = BytesMut::with_capacity(4 + header.len() + body.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(header);
    frame.extend_from_slice(body);
    frame.freeze()
}

fn refuse_all(asked: &FetchRequest, error: ErrorCode) -> FetchResponse {
    let mut response = FetchResponse::error(ErrorCode::None);
    response.read_committed = asked.isolation_level == READ_COMMITTED;
    response.topics = asked
        .topics
        .iter()
        .map(|t| FetchTopicResponse {
            topic: t.topic.clone(),
            partitions: t.partitions.iter().map(|p| FetchPartitionResponse::refused(p.partition, error)).collect(),
        })
        .collect();
    response
}

async fn serve(session: &mut Session, request: &Incoming, asked: &FetchRequest) -> Result<Reply, HandleError> {
    let reply = |response: &FetchResponse| {
        Ok(Reply::Now(Answer::Frame(response.encode(request.header.correlation_id, request.version()))))
    };
    let begun = session.proxy.fetch_sessions.lock().begin(asked, request.version(), wall_time_ms());
    let (context, wanted) = match begun {
        Ok(begun) => begun,
        Err(error) => return reply(&FetchResponse::error(error)),
    };
    let known = Arc::clone(&session.proxy.coordination.view().topics());
    let names = wanted.iter().filter_map(|wanted| name(&known, &wanted.topic));
    session.learn_rights(&request.client_id(), names).await?;
    let (mut answers, partitions) = check_all(session, &known, wanted);
    let serving = fetch::FetchRequest {
        max_wait: wait_of(asked),
        min_bytes: usize::try_from(asked.min_bytes).unwrap_or(0),
        max_bytes: usize::try_from(asked.max_bytes).unwrap_or(0).min(session.proxy.config.fetch.max_bytes),
        has_errors: answers.iter().any(|answer| answer.response.error != ErrorCode::None),
        is_ordered: matches!(context, FetchContext::Incremental { .. }),
        partitions,
    };
    let stop = session.proxy.tasks.stop_token();
    let fetched = tokio::select! {
        biased;
        fetched = session.proxy.fetch.fetch(&serving) => fetched,
        // The proxy drains: the client gets what it would get from an idle topic, and goes elsewhere.
        () = stop.cancelled() => serving.partitions.iter().map(|p| unread(p.view.bounds())).collect(),
    };
    count(session, &serving, &fetched);
    fill_in(&mut answers, fetched);
    let new_id = || rand::random_range(1..=i32::MAX);
    let ended = session.proxy.fetch_sessions.lock().end(context, &mut answers, wall_time_ms(), new_id);
    let mut response = FetchResponse::error(ended.0);
    response.session_id = ended.1;
    response.read_committed = asked.isolation_level == READ_COMMITTED;
    response.topics = by_topic(answers);
    reply(&response)
}

fn wait_of(asked: &FetchRequest) -> Duration {
    Duration::from_millis(u64::try_from(asked.max_wait_ms.clamp(0, LONGEST_WAIT_MS)).unwrap_or(0))
}

fn find<'a>(known: &'a Topics, topic: &TopicRef) -> Option<&'a Arc<Topic>> {
    match topic {
        TopicRef::Name(name) => known.named(name),
        TopicRef::Id(id) => known.by_id.get(id),
    }
}

/// The name by which upstream is asked who may read the topic.
fn name<'a>(known: &'a Topics, topic: &'a TopicRef) -> Option<&'a str> {
    match topic {
        TopicRef::Name(name) => Some(name.as_str()),
        TopicRef::Id(id) => known.by_id.get(id).map(|topic| topic.name.as_str()),
    }
}

/// An answer for each partition: its error, or an empty one to be filled in with what is fetched of it.
fn check_all(
    session: &Session,
    known: &Topics,
    wanted: Vec<WantedPartition>,
) -> (Vec<AnsweredPartition>, Vec<fetch::FetchPartition>) {
    let mut partitions = Vec::with_capacity(wanted.len());
    let answer = |wanted: WantedPartition| {
        let checked = check(session, known, &wanted);
        let error = checked.as_ref().err().copied().unwrap_or(ErrorCode::None);
        partitions.extend(checked);
        AnsweredPartition { response: FetchPartitionResponse::refused(wanted.asked.partition, error), wanted }
    };
    let answers = wanted.into_iter().map(answer).collect();
    (answers, partitions)
}

fn check(session: &Session, known: &Topics, wanted: &WantedPartition) -> Result<fetch::FetchPartition, ErrorCode> {
    let topic = find(known, &wanted.topic).ok_or_else(|| not_led_here(session, &wanted.topic))?;
    if !session.proxy.serves_diskless() {
        return Err(ErrorCode::NotLeaderOrFollower);
    }
    session.may(Operation::Read, &topic.name, Some(topic.id))?;
    let index = usize::try_from(wanted.asked.partition).map_err(|_| ErrorCode::UnknownTopicOrPartition)?;
    let view = topic.partitions.get(index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    check_leader_epoch(wanted.asked.current_leader_epoch, topic.leader_epoch)?;
    Ok(fetch::FetchPartition {
        view: Arc::clone(view),
        leader_epoch: topic.leader_epoch,
        fetch_offset: wanted.asked.fetch_offset,
        max_bytes: usize::try_from(wanted.asked.partition_max_bytes).unwrap_or(0),
    })
}

/// The code for a topic that is not diskless.
fn not_led_here(session: &Session, topic: &TopicRef) -> ErrorCode {
    match topic {
        TopicRef::Name(name) => session.not_led_here(Operation::Read, name),
        TopicRef::Id(id) if session.proxy.catalog.is_metadata_topic_id(*id) => ErrorCode::TopicAuthorizationFailed,
        TopicRef::Id(id) if session.proxy.catalog.is_classic_id(*id) => ErrorCode::NotLeaderOrFollower,
        TopicRef::Id(_) => ErrorCode::UnknownTopicId,
    }
}

fn count(session: &Session, serving: &fetch::FetchRequest, fetched: &[fetch::FetchedPartition]) {
    let known = session.proxy.coordination.view().topics();
    for (partition, fetched) in serving.partitions.iter().zip(fetched).filter(|(_, fetched)| fetched.bytes > 0) {
        if let Some(topic) = known.by_id.get(&partition.view.partition.topic_id) {
            let bytes = fetched.bytes as u64;
            session.proxy.stats.topic(&topic.name).fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

/// Puts what was fetched into the answers without an error, in their order.
fn fill_in(answers: &mut [AnsweredPartition], fetched: Vec<fetch::FetchedPartition>) {
    let open = answers.iter_mut().filter(|answer| answer.response.error == ErrorCode::None);
    for (answer, fetched) in open.zip(fetched) {
        answer.response = served(answer.wanted.asked.partition, fetched);
    }
}

/// As Kafka: partitions of one topic that stand together are one entry, and their order is kept.
fn by_topic(answers: Vec<AnsweredPartition>) -> Vec<FetchTopicResponse> {
    let mut topics: Vec<FetchTopicResponse> = Vec::new();
    for AnsweredPartition { wanted, response } in answers {
        match topics.last_mut().filter(|last| last.topic == wanted.topic) {
            Some(last) => last.partitions.push(response),
            None => topics.push(FetchTopicResponse { topic: wanted.topic, partitions: vec![response] }),
        }
    }
    topics
}

/// A client that knows no epoch sends -1.
pub(super) fn check_leader_epoch(asked: i32, ours: i32) -> Result<(), ErrorCode> {
    match asked {
        -1 => Ok(()),
        epoch if epoch < ours => Err(ErrorCode::FencedLeaderEpoch),
        epoch if epoch > ours => Err(ErrorCode::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

fn served(partition: i32, fetched: fetch::FetchedPartition) -> FetchPartitionResponse {
    let is_error = fetched.error != ErrorCode::None;
    let offset = |offset| if is_error { -1 } else { offset };
    FetchPartitionResponse {
        partition,
        error: fetched.error,
        high_watermark: offset(fetched.bounds.high_watermark),
        last_stable_offset: offset(fetched.bounds.high_watermark),
        log_start_offset: offset(fetched.bounds.log_start_offset),
        records: fetched.records,
    }
}

/// A partition that there was no time to read.
fn unread(bounds: Bounds) -> fetch::FetchedPartition {
    fetch::FetchedPartition { error: ErrorCode::None, bounds, records: Vec::new(), bytes: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::StrBytes;
    use crate::wire::fetch_request::FetchPartition;

    #[test]
    fn leader_epochs_are_compared_only_when_given() {
        assert_eq!(check_leader_epoch(-1, 3), Ok(()));
        assert_eq!(check_leader_epoch(3, 3), Ok(()));
        assert_eq!(check_leader_epoch(2, 3), Err(ErrorCode::FencedLeaderEpoch));
        assert_eq!(check_leader_epoch(4, 3), Err(ErrorCode::UnknownLeaderEpoch));
    }

    #[test]
    fn topics_are_grouped_in_the_order_of_their_partitions() {
        let answer = |name, partition| AnsweredPartition {
            wanted: WantedPartition {
                topic: TopicRef::Name(StrBytes::from_static_str(name)),
                asked: FetchPartition {
                    partition,
                    current_leader_epoch: -1,
                    fetch_offset: 0,
                    log_start_offset: -1,
                    partition_max_bytes: 1,
                },
            },
            response: FetchPartitionResponse::refused(partition, ErrorCode::None),
        };
        let grouped = by_topic(vec![answer("a", 1), answer("a", 0), answer("b", 0), answer("a", 2)]);
        let partitions: Vec<Vec<i32>> =
            grouped.iter().map(|topic| topic.partitions.iter().map(|p| p.partition).collect()).collect();
        assert_eq!(partitions, [vec![1, 0], vec![0], vec![2]]);
    }

    #[test]
    fn a_frame_is_put_together_again() {
        assert_eq!(reframe(b"head", b"body")[..], *b"\0\0\0\x08headbody");
    }
}
