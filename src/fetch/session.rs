//! One fetch session (KIP-227): the partitions that a client reads, in the order in which they are read, and what it
//! was last told of each. Kafka's `FetchSession` and `IncrementalFetchContext`; nothing here waits.

use std::collections::{BTreeMap, HashMap};

use crate::types::{ErrorCode, Offset};
use crate::wire::fetch_request::{FetchPartition, ForgottenTopic};
use crate::wire::fetch_response::FetchPartitionResponse;
use crate::wire::{StrBytes, TopicRef};

/// A partition of a Fetch, as the client names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedPartition {
    pub topic: TopicRef,
    pub asked: FetchPartition,
}

/// The answer for one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnsweredPartition {
    pub wanted: WantedPartition,
    pub response: FetchPartitionResponse,
}

type Key = (TopicRef, i32);

/// What is kept of one partition, besides its name: both maps, with room for their growth.
const PARTITION_COST: usize = 2 * (size_of::<Key>() + size_of::<u64>()) + size_of::<Cached>();

#[derive(Debug)]
struct Cached {
    wanted: WantedPartition,
    /// As the client was last told; -1 after an error, so that its end is told.
    high_watermark: Offset,
    log_start_offset: Offset,
}

impl Cached {
    /// Remembers what the client is told. True if that is news, records apart.
    fn told(&mut self, response: &FetchPartitionResponse) -> bool {
        let has_moved =
            (self.high_watermark, self.log_start_offset) != (response.high_watermark, response.log_start_offset);
        let is_error = response.error != ErrorCode::None;
        self.high_watermark = if is_error { -1 } else { response.high_watermark };
        self.log_start_offset = response.log_start_offset;
        has_moved || is_error
    }
}

#[derive(Debug, Default)]
pub(super) struct Session {
    /// In the order in which they are read: those that returned data stand at the end.
    partitions: BTreeMap<u64, Cached>,
    places: HashMap<Key, u64>,
    next_place: u64,
    cost: usize,
}

fn key(wanted: &WantedPartition) -> Key {
    (wanted.topic.clone(), wanted.asked.partition)
}

fn cost(topic: &TopicRef) -> usize {
    match topic {
        TopicRef::Name(name) => PARTITION_COST + name.len(),
        TopicRef::Id(_) => PARTITION_COST,
    }
}

impl Session {
    /// The session that a full Fetch opens, with what it was answered.
    pub(super) fn open(answers: &[AnsweredPartition]) -> Self {
        let mut session = Self::default();
        for answer in answers {
            session.set(&answer.wanted);
            if let Some(cached) = session.cached(&key(&answer.wanted)) {
                cached.told(&answer.response);
            }
        }
        session
    }

    pub(super) fn len(&self) -> usize {
        self.partitions.len()
    }

    /// Memory, at most about so many bytes.
    pub(super) fn cost(&self) -> usize {
        self.cost
    }

    /// What the session will cost more with these partitions.
    pub(super) fn cost_of<'a>(&self, wanted: impl Iterator<Item = &'a WantedPartition>) -> usize {
        wanted.filter(|wanted| !self.places.contains_key(&key(wanted))).map(|wanted| cost(&wanted.topic)).sum()
    }

    /// Takes the changes that an incremental Fetch asks for.
    pub(super) fn update(&mut self, changed: &[WantedPartition], forgotten: &[ForgottenTopic]) {
        for wanted in changed {
            self.set(wanted);
        }
        for topic in forgotten {
            for partition in &topic.partitions {
                self.forget(&(topic.topic.clone(), *partition));
            }
        }
    }

    /// All partitions, in the order in which they are to be read.
    pub(super) fn wanted(&self) -> Vec<WantedPartition> {
        self.partitions.values().map(|cached| cached.wanted.clone()).collect()
    }

    /// Whether the client must be told; if so, it counts as told. A partition that returned data goes to the end of the
    /// order, so that with a small budget no partition is always last.
    pub(super) fn tell(&mut self, answer: &AnsweredPartition) -> bool {
        let key = key(&answer.wanted);
        let Some(cached) = self.cached(&key) else {
            // Another Fetch of the session has taken it away meanwhile.
            return true;
        };
        let has_news = cached.told(&answer.response);
        if answer.response.records.is_empty() {
            return has_news;
        }
        if let Some(cached) = self.places.remove(&key).and_then(|place| self.partitions.remove(&place)) {
            self.append(key, cached);
        }
        true
    }

    fn cached(&mut self, key: &Key) -> Option<&mut Cached> {
        self.partitions.get_mut(self.places.get(key)?)
    }

    fn set(&mut self, wanted: &WantedPartition) {
        let key = key(wanted);
        if let Some(cached) = self.cached(&key) {
            cached.wanted.asked = wanted.asked;
            return;
        }
        self.cost += cost(&wanted.topic);
        let topic = self.own(&wanted.topic);
        let key = (topic.clone(), wanted.asked.partition);
        let wanted = WantedPartition { topic, asked: wanted.asked };
        self.append(key, Cached { wanted, high_watermark: -1, log_start_offset: -1 });
    }

    /// A name that does not keep the memory of the request that it came in; one for a run of partitions.
    fn own(&self, topic: &TopicRef) -> TopicRef {
        match (topic, self.partitions.last_key_value()) {
            (topic, Some((_, last))) if last.wanted.topic == *topic => last.wanted.topic.clone(),
            (TopicRef::Name(name), _) => TopicRef::Name(StrBytes::from_string(name.as_str().to_owned())),
            (TopicRef::Id(id), _) => TopicRef::Id(*id),
        }
    }

    fn append(&mut self, key: Key, cached: Cached) {
        self.places.insert(key, self.next_place);
        self.partitions.insert(self.next_place, cached);
        self.next_place += 1;
    }

    fn forget(&mut self, key: &Key) {
        if let Some(place) = self.places.remove(key) {
            self.partitions.remove(&place);
            self.cost -= cost(&key.0);
        }
    }
}
