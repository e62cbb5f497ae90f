//! All fetch sessions of this process (KIP-227): who may open one, which epoch comes next, and which is closed when
//! there are too many. Kafka's `FetchManager` and `FetchSessionCache`; nothing here waits, time and chance are given.
//!
//! A session saves a client that reads thousands of partitions from naming all of them in each Fetch, and us from
//! answering for those without news. It grants nothing: rights are checked for every partition of every Fetch.

use std::collections::HashMap;

use super::session::{AnsweredPartition, Session, WantedPartition};
use crate::types::ErrorCode;
use crate::wire::TopicRef;
use crate::wire::fetch_request::{FetchRequest, has_topic_ids};

/// Sessions at once, as in Kafka (`max.incremental.fetch.session.cache.slots`).
const MOST_SESSIONS: usize = 1000;
/// What they may hold together; Kafka has no such bound.
const MOST_BYTES: usize = 64 << 20;
/// A session that was not used for so long may be closed for another (`min.incremental.fetch.session.eviction.ms`).
const EVICTION_MS: i64 = 120_000;
/// A Fetch of this session epoch asks for a new session, one of `FINAL` for none.
const INITIAL: i32 = 0;
const FINAL: i32 = -1;
/// The id of no session.
pub const NO_SESSION: i32 = 0;

/// The bounds of [`FetchSessions`].
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    pub sessions: usize,
    pub bytes: usize,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { sessions: MOST_SESSIONS, bytes: MOST_BYTES }
    }
}

/// How a Fetch stands to sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchContext {
    Sessionless,
    /// All partitions are named; a session is opened with the answer.
    Full {
        uses_topic_ids: bool,
    },
    /// Changes to a session, which has this epoch now.
    Incremental {
        id: i32,
        epoch: i32,
    },
}

#[derive(Debug)]
struct Slot {
    session: Session,
    uses_topic_ids: bool,
    /// Of the next request.
    epoch: i32,
    created_ms: i64,
    used_ms: i64,
}

/// The sessions by their ids.
#[derive(Debug, Default)]
pub struct FetchSessions {
    slots: HashMap<i32, Slot>,
    limits: SessionLimits,
    bytes: usize,
}

/// The epoch after this one; 0 and below have a meaning of their own.
fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

impl FetchSessions {
    pub fn new(limits: SessionLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// What a Fetch is to read, in this order, or the error of the whole answer.
    pub fn begin(
        &mut self,
        request: &FetchRequest,
        version: i16,
        now_ms: i64,
    ) -> Result<(FetchContext, Vec<WantedPartition>), ErrorCode> {
        let uses_topic_ids = has_topic_ids(version);
        let named = named(request);
        match request.session_epoch {
            INITIAL | FINAL => {
                // A session that a full Fetch names is closed.
                self.close(request.session_id);
                let context = match request.session_epoch {
                    INITIAL => FetchContext::Full { uses_topic_ids },
                    _ => FetchContext::Sessionless,
                };
                Ok((context, named))
            }
            epoch => self.go_on(request, (epoch, uses_topic_ids), named, now_ms),
        }
    }

    fn go_on(
        &mut self,
        request: &FetchRequest,
        (epoch, uses_topic_ids): (i32, bool),
        named: Vec<WantedPartition>,
        now_ms: i64,
    ) -> Result<(FetchContext, Vec<WantedPartition>), ErrorCode> {
        let id = request.session_id;
        let slot = self.slots.get_mut(&id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if slot.epoch != epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if slot.uses_topic_ids != uses_topic_ids {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        let before = slot.session.cost();
        if self.bytes + slot.session.cost_of(named.iter()) > self.limits.bytes {
            // The client names everything again, and is answered without a session.
            self.close(id);
            return Err(ErrorCode::FetchSessionIdNotFound);
        }
        slot.session.update(&named, &request.forgotten);
        self.bytes = self.bytes - before + slot.session.cost();
        if slot.session.len() == 0 {
            self.close(id);
            return Ok((FetchContext::Sessionless, named));
        }
        slot.used_ms = now_ms;
        slot.epoch = next_epoch(epoch);
        Ok((FetchContext::Incremental { id, epoch: slot.epoch }, slot.session.wanted()))
    }

    /// What is told of the answers, and the id for the client; or the error of the whole answer. `new_id` gives ids
    /// above 0.
    pub fn end(
        &mut self,
        context: FetchContext,
        answers: &mut Vec<AnsweredPartition>,
        now_ms: i64,
        new_id: impl FnMut() -> i32,
    ) -> (ErrorCode, i32) {
        match context {
            FetchContext::Sessionless => (ErrorCode::None, NO_SESSION),
            FetchContext::Full { uses_topic_ids } => {
                (ErrorCode::None, self.open(uses_topic_ids, answers, now_ms, new_id))
            }
            FetchContext::Incremental { id, epoch } => match self.slots.get_mut(&id) {
                // Another Fetch of the session came before this one was answered.
                Some(slot) if slot.epoch != epoch => {
                    answers.clear();
                    (ErrorCode::InvalidFetchSessionEpoch, id)
                }
                Some(slot) => {
                    answers.retain(|answer| slot.session.tell(answer));
                    (ErrorCode::None, id)
                }
                // Closed for another meanwhile: nobody knows any more what was told.
                None => (ErrorCode::None, id),
            },
        }
    }

    fn open(
        &mut self,
        uses_topic_ids: bool,
        answers: &[AnsweredPartition],
        now_ms: i64,
        mut new_id: impl FnMut() -> i32,
    ) -> i32 {
        let cost = Session::default().cost_of(answers.iter().map(|answer| &answer.wanted));
        let is_full = |s: &Self| s.slots.len() >= s.limits.sessions || s.bytes + cost > s.limits.bytes;
        while is_full(self) {
            if cost > self.limits.bytes || !self.evict(answers.len(), now_ms) {
                return NO_SESSION;
            }
        }
        let id = loop {
            let id = new_id();
            if id > 0 && !self.slots.contains_key(&id) {
                break id;
            }
        };
        let session = Session::open(answers);
        self.bytes += session.cost();
        let epoch = next_epoch(INITIAL);
        self.slots.insert(id, Slot { session, uses_topic_ids, epoch, created_ms: now_ms, used_ms: now_ms });
        id
    }

    /// Closes a session for one of `size` partitions: the one that was idle longest, if that was long; else the
    /// smallest of those that have had their time, if it is smaller than the new one.
    fn evict(&mut self, size: usize, now_ms: i64) -> bool {
        let idle = self.slots.iter().min_by_key(|(id, slot)| (slot.used_ms, **id));
        let idle = idle.filter(|(_, slot)| now_ms.saturating_sub(slot.used_ms) > EVICTION_MS);
        let has_had_its_time = |slot: &Slot| slot.used_ms.saturating_sub(slot.created_ms) > EVICTION_MS;
        let small = self.slots.iter().filter(|(_, slot)| has_had_its_time(slot));
        let small = small.min_by_key(|(id, slot)| (slot.session.len(), **id));
        let small = small.filter(|(_, slot)| size > slot.session.len());
        let Some(id) = idle.or(small).map(|(id, _)| *id) else { return false };
        self.close(id);
        true
    }

    fn close(&mut self, id: i32) {
        if let Some(slot) = self.slots.remove(&id) {
            self.bytes -= slot.session.cost();
        }
    }
}

/// The partitions that a request names, each once: at its first place, with what it says last.
fn named(request: &FetchRequest) -> Vec<WantedPartition> {
    let count = request.topics.iter().map(|topic| topic.partitions.len()).sum();
    let mut named: Vec<WantedPartition> = Vec::with_capacity(count);
    let mut places: HashMap<(&TopicRef, i32), usize> = HashMap::with_capacity(count);
    for topic in &request.topics {
        for asked in &topic.partitions {
            let place = *places.entry((&topic.topic, asked.partition)).or_insert(named.len());
            let wanted = WantedPartition { topic: topic.topic.clone(), asked: *asked };
            match named.get_mut(place) {
                Some(earlier) => *earlier = wanted,
                None => named.push(wanted),
            }
        }
    }
    named
}

#[cfg(test)]
mod tests;
