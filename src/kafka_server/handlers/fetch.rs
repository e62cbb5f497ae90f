//! Fetch: diskless partitions are served here, classic ones by the mapped broker.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::diskless_coordinator::view::{Topic, Topics};
use crate::fetch;
use crate::kafka_server::answers::Answer;
use crate::kafka_server::authorization::Operation;
use crate::kafka_server::dispatch::{HandleError, Incoming, Refused, Reply};
use crate::kafka_server::session::{Door, Session};
use crate::types::ErrorCode;
use crate::wire::TopicRef;
use crate::wire::fetch_request::{FetchPartition, FetchRequest};
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
/// thing may not look there, asks the leader again, and never gets a record (aiokafka 0.14 does that). So our zone goes
/// only to clients that name their software, which came with the same Kafka 2.4 as the other replicas did: all of those
/// that were tried follow.
fn pass_or_redirect(session: &Session, request: &Incoming, asked: &FetchRequest) -> Reply {
    let topics = session.proxy.coordination.view().topics();
    if asked.topics.iter().any(|t| is_withheld(session, &topics, &t.topic)) {
        let response = refuse_all(asked, ErrorCode::NotLeaderOrFollower);
        return Reply::Now(Answer::Frame(response.encode(request.header.correlation_id, request.version())));
    }
    if session.proxy.config.listener.fetch_rack && session.names_its_software {
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
    if asked.session_id != 0 && asked.session_epoch > 0 {
        // We open no sessions, so this one was opened by another process behind this address.
        let response = FetchResponse::error(ErrorCode::FetchSessionIdNotFound);
        return Ok(Reply::Now(Answer::Frame(response.encode(request.header.correlation_id, request.version()))));
    }
    let known = Arc::clone(&session.proxy.coordination.view().topics());
    let topics: Vec<_> = asked.topics.iter().map(|t| find(&known, &t.topic)).collect();
    let names = topics.iter().flatten().map(|t| t.name.as_str());
    session.learn_rights(&request.client_id(), names).await?;
    let mut plan = Plan::default();
    for (number, (wanted, topic)) in asked.topics.iter().zip(&topics).enumerate() {
        for partition in &wanted.partitions {
            plan.add(session, (number, partition), wanted_topic(&wanted.topic, topic.as_ref()));
        }
    }
    let serving = fetch::FetchRequest {
        max_wait: wait_of(asked),
        min_bytes: usize::try_from(asked.min_bytes).unwrap_or(0),
        max_bytes: usize::try_from(asked.max_bytes).unwrap_or(0).min(session.proxy.config.fetch.max_bytes),
        has_errors: plan.refused.values().next().is_some(),
        partitions: std::mem::take(&mut plan.partitions),
    };
    let stop = session.proxy.tasks.stop_token();
    let fetched = tokio::select! {
        biased;
        fetched = session.proxy.fetch.fetch(&serving) => fetched,
        // The proxy drains: the client gets what it would get from an idle topic, and goes elsewhere.
        () = stop.cancelled() => Vec::new(),
    };
    let response = plan.response(session, asked, &topics, fetched);
    Ok(Reply::Now(Answer::Frame(response.encode(request.header.correlation_id, request.version()))))
}

fn wait_of(asked: &FetchRequest) -> Duration {
    Duration::from_millis(u64::try_from(asked.max_wait_ms.clamp(0, LONGEST_WAIT_MS)).unwrap_or(0))
}

fn find(known: &Topics, topic: &TopicRef) -> Option<Arc<Topic>> {
    match topic {
        TopicRef::Name(name) => known.named(name).cloned(),
        TopicRef::Id(id) => known.by_id.get(id).cloned(),
    }
}

/// The topic, or the code for one that is not diskless.
fn wanted_topic<'a>(named: &TopicRef, topic: Option<&'a Arc<Topic>>) -> Result<&'a Arc<Topic>, ErrorCode> {
    topic.ok_or(match named {
        TopicRef::Name(_) => ErrorCode::NotLeaderOrFollower,
        TopicRef::Id(_) => ErrorCode::UnknownTopicId,
    })
}

/// Which partitions are fetched, and which are refused. Keys are the place in the request: topic, then partition.
#[derive(Default)]
struct Plan {
    partitions: Vec<fetch::FetchPartition>,
    fetched: Vec<(usize, i32)>,
    refused: HashMap<(usize, i32), ErrorCode>,
}

impl Plan {
    fn add(
        &mut self,
        session: &Session,
        (number, wanted): (usize, &FetchPartition),
        topic: Result<&Arc<Topic>, ErrorCode>,
    ) {
        match check(session, wanted, topic) {
            Ok(partition) => {
                self.partitions.push(partition);
                self.fetched.push((number, wanted.partition));
            }
            Err(error) => {
                self.refused.insert((number, wanted.partition), error);
            }
        }
    }

    fn response(
        self,
        session: &Session,
        asked: &FetchRequest,
        topics: &[Option<Arc<Topic>>],
        fetched: Vec<fetch::FetchedPartition>,
    ) -> FetchResponse {
        let mut found: HashMap<(usize, i32), fetch::FetchedPartition> = self.fetched.into_iter().zip(fetched).collect();
        let mut response = FetchResponse::error(ErrorCode::None);
        response.read_committed = asked.isolation_level == READ_COMMITTED;
        for (number, wanted) in asked.topics.iter().enumerate() {
            let mut partitions = Vec::with_capacity(wanted.partitions.len());
            let mut bytes = 0;
            for partition in &wanted.partitions {
                let place = (number, partition.partition);
                let answer = match (self.refused.get(&place), found.remove(&place)) {
                    (Some(error), _) => FetchPartitionResponse::refused(partition.partition, *error),
                    (None, Some(fetched)) => {
                        bytes += fetched.bytes;
                        served(partition.partition, fetched)
                    }
                    (None, None) => unread(topics[number].as_ref(), partition),
                };
                partitions.push(answer);
            }
            if let Some(topic) = &topics[number] {
                session.proxy.stats.topic(&topic.name).fetched_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            response.topics.push(FetchTopicResponse { topic: wanted.topic.clone(), partitions });
        }
        response
    }
}

fn check(
    session: &Session,
    wanted: &FetchPartition,
    topic: Result<&Arc<Topic>, ErrorCode>,
) -> Result<fetch::FetchPartition, ErrorCode> {
    let topic = topic?;
    if !session.proxy.serves_diskless() {
        return Err(ErrorCode::NotLeaderOrFollower);
    }
    session.may(Operation::Read, &topic.name, Some(topic.id))?;
    let index = usize::try_from(wanted.partition).map_err(|_| ErrorCode::UnknownTopicOrPartition)?;
    let view = topic.partitions.get(index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    check_leader_epoch(wanted.current_leader_epoch, topic.leader_epoch)?;
    Ok(fetch::FetchPartition {
        view: Arc::clone(view),
        leader_epoch: topic.leader_epoch,
        fetch_offset: wanted.fetch_offset,
        max_bytes: usize::try_from(wanted.partition_max_bytes).unwrap_or(0),
    })
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

/// An empty answer for a partition that there was no time to read.
fn unread(topic: Option<&Arc<Topic>>, wanted: &FetchPartition) -> FetchPartitionResponse {
    let view = topic.and_then(|t| t.partitions.get(usize::try_from(wanted.partition).ok()?));
    let Some(bounds) = view.map(|v| v.bounds()) else {
        return FetchPartitionResponse::refused(wanted.partition, ErrorCode::UnknownTopicOrPartition);
    };
    FetchPartitionResponse {
        partition: wanted.partition,
        error: ErrorCode::None,
        high_watermark: bounds.high_watermark,
        last_stable_offset: bounds.high_watermark,
        log_start_offset: bounds.log_start_offset,
        records: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leader_epochs_are_compared_only_when_given() {
        assert_eq!(check_leader_epoch(-1, 3), Ok(()));
        assert_eq!(check_leader_epoch(3, 3), Ok(()));
        assert_eq!(check_leader_epoch(2, 3), Err(ErrorCode::FencedLeaderEpoch));
        assert_eq!(check_leader_epoch(4, 3), Err(ErrorCode::UnknownLeaderEpoch));
    }

    #[test]
    fn a_frame_is_put_together_again() {
        assert_eq!(reframe(b"head", b"body")[..], *b"\0\0\0\x08headbody");
    }
}
