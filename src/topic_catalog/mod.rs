//! Which topics are diskless, and how they become so and cease to be. The only place that decides the kind of a topic.
//!
//! A topic upstream is seen by clients before we may know its kind: another proxy may just have created it. So a topic
//! id that was never seen before is *unclassified* until one barrier, begun after it was first seen, has passed (R5):
//! whoever creates a diskless topic announces its name in the log first, so after the barrier either the
//! registration, or the announcement, or neither is known here, and only then it is classic.

pub mod config;
pub mod create;
pub mod shadow;
mod watcher;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

use crate::coordination::Coordination;
use crate::diskless_coordinator::view::{Topic, Topics};
use crate::types::TopicId;
use crate::upstream::ClusterView;

pub use watcher::{StrayStats, watch};

/// What a topic is, as far as this proxy may say.
#[derive(Clone)]
pub enum Kind {
    Diskless(Arc<Topic>),
    Classic,
    /// Not to be shown yet, or no longer: answer that there is no such topic, and the client will ask again.
    Hidden,
}

/// Knows the kind of every topic.
pub struct TopicCatalog {
    coordination: Arc<Coordination>,
    cluster: ClusterView,
    metadata_topic: String,
    metadata_topic_id: TopicId,
    /// Ids that were found to be classic. Ids are never reused, so this stays true.
    classic: RwLock<HashSet<TopicId>>,
}

/// How long an unclassified topic is waited for before it is hidden for this answer.
const BARRIER_WAIT: Duration = Duration::from_secs(5);

impl TopicCatalog {
    pub fn new(
        coordination: Arc<Coordination>,
        cluster: ClusterView,
        (metadata_topic, metadata_topic_id): (String, TopicId),
    ) -> Self {
        Self { coordination, cluster, metadata_topic, metadata_topic_id, classic: RwLock::default() }
    }

    /// The topic that holds our own log: no client may touch it.
    pub fn is_metadata_topic(&self, name: &str) -> bool {
        name == self.metadata_topic
    }

    pub fn is_metadata_topic_id(&self, id: TopicId) -> bool {
        !id.is_zero() && id == self.metadata_topic_id
    }

    /// Whether an id was found to be a classic topic's. Not every classic topic was looked at.
    pub fn is_classic_id(&self, id: TopicId) -> bool {
        self.classic.read().contains(&id)
    }

    /// Whether a broker of upstream must not be given records of this topic.
    pub fn is_withheld(&self, name: &str) -> bool {
        let topics = self.coordination.view().topics();
        topics.by_name.contains_key(name) || topics.pending.contains(name) || self.is_metadata_topic(name)
    }

    /// The kinds of topics that upstream has just named, in their order.
    pub async fn classify(&self, named: &[(TopicId, &str)]) -> Vec<Kind> {
        let known = self.classify_known(named);
        if known.iter().all(Option::is_some) {
            return known.into_iter().flatten().collect();
        }
        let passed = self.coordination.end_barrier(Instant::now() + BARRIER_WAIT).await.is_ok();
        if passed {
            self.learn_classic(named);
        }
        self.classify_known(named).into_iter().map(|kind| kind.unwrap_or(Kind::Hidden)).collect()
    }

    fn classify_known(&self, named: &[(TopicId, &str)]) -> Vec<Option<Kind>> {
        let topics = self.coordination.view().topics();
        let classic = self.classic.read();
        named.iter().map(|(id, name)| classify_one(&topics, &classic, *id, name)).collect()
    }

    /// After a barrier: what is neither registered nor announced is classic.
    fn learn_classic(&self, named: &[(TopicId, &str)]) {
        let topics = self.coordination.view().topics();
        let is_classic = |id: &TopicId, name: &str| {
            !topics.by_id.contains_key(id) && !topics.deleted.contains(id) && !topics.pending.contains(name)
        };
        let found = named.iter().filter(|(id, name)| is_classic(id, name)).map(|(id, _)| *id);
        self.classic.write().extend(found);
    }
}

fn classify_one(topics: &Topics, classic: &HashSet<TopicId>, id: TopicId, name: &str) -> Option<Kind> {
    if id.is_zero() {
        // An upstream without topic ids (older than 2.8, or a mock): the name is all there is.
        return Some(topics.named(name).map_or(Kind::Classic, |t| Kind::Diskless(Arc::clone(t))));
    }
    if let Some(topic) = topics.by_id.get(&id) {
        return Some(Kind::Diskless(Arc::clone(topic)));
    }
    if topics.deleted.contains(&id) {
        return Some(Kind::Hidden);
    }
    classic.contains(&id).then_some(Kind::Classic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_nobody_vouches_for_is_unclassified() {
        let id = TopicId([1; 16]);
        let mut topics = Topics::default();
        let mut classic = HashSet::new();
        assert!(classify_one(&topics, &classic, id, "t").is_none());
        classic.insert(id);
        assert!(matches!(classify_one(&topics, &classic, id, "t"), Some(Kind::Classic)));
        topics.deleted.insert(id);
        assert!(matches!(classify_one(&topics, &classic, id, "t"), Some(Kind::Hidden)));
    }

    #[test]
    fn a_topic_created_again_under_its_old_name_is_not_the_old_topic() {
        let old = Topic {
            id: TopicId([1; 16]),
            name: "t".to_owned(),
            leader_epoch: 0,
            config: Default::default(),
            partitions: Vec::new(),
        };
        let mut topics = Topics::default();
        topics.by_name.insert("t".to_owned(), old.id);
        topics.by_id.insert(old.id, Arc::new(old));
        assert!(classify_one(&topics, &HashSet::new(), TopicId([2; 16]), "t").is_none());
    }
}
