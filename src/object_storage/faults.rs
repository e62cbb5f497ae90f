//! Makes the store fail on purpose, for tests and for an operator's rehearsal. Rules are switched at run time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::request::{Failure, Layer, Operation, Reply, Request};

/// How a request fails. Together these are the worlds that a caller cannot tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Nothing is done, and the caller does not learn that for certain.
    ErrorBefore,
    /// It is done, and the caller is told of an error.
    ErrorAfter,
    /// The store says 503: nothing is done, and the caller knows.
    Unavailable,
    /// The store refuses for good, as for a missing right.
    Refused,
    /// The object is not there.
    NotFound,
    /// A GET gives other bytes than were stored.
    FlipByte,
    /// Nothing happens while the rule stands.
    Hold,
    /// It takes so much longer.
    DelayMs(u64),
}

/// Which requests fail, how, and for how long.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// All operations where absent.
    #[serde(default)]
    pub operation: Option<Operation>,
    /// Only keys that contain this; a listing counts with its prefix.
    #[serde(default)]
    pub key_contains: Option<String>,
    pub fault: Fault,
    /// So many requests; without limit where absent.
    #[serde(default)]
    pub times: Option<u32>,
    /// So long after it was set; without limit where absent.
    #[serde(default)]
    pub for_ms: Option<u64>,
}

impl FaultRule {
    pub fn new(operation: Operation, fault: Fault) -> Self {
        Self { operation: Some(operation), key_contains: None, fault, times: None, for_ms: None }
    }

    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    #[must_use]
    pub fn for_ms(mut self, ms: u64) -> Self {
        self.for_ms = Some(ms);
        self
    }

    #[must_use]
    pub fn for_key(mut self, contains: &str) -> Self {
        self.key_contains = Some(contains.to_owned());
        self
    }
}

/// Sets and clears the rules of one store. Clones share them.
#[derive(Clone)]
pub struct FaultHandle(Arc<Shared>);

struct Shared {
    rules: Mutex<Vec<ActiveRule>>,
    /// Moves with every change, for requests that are held.
    changed: watch::Sender<u64>,
}

struct ActiveRule {
    rule: FaultRule,
    left: Option<u32>,
    until: Option<Instant>,
}

impl Default for FaultHandle {
    fn default() -> Self {
        Self(Arc::new(Shared { rules: Mutex::default(), changed: watch::Sender::new(0) }))
    }
}

impl FaultHandle {
    /// Replaces all rules; of several that match, the first counts. None: the store is well.
    pub fn set(&self, rules: impl IntoIterator<Item = FaultRule>) {
        let active = rules.into_iter().map(|rule| ActiveRule {
            left: rule.times,
            until: rule.for_ms.map(|ms| Instant::now() + Duration::from_millis(ms)),
            rule,
        });
        *self.0.rules.lock() = active.collect();
        self.0.changed.send_modify(|version| *version += 1);
    }

    pub fn clear(&self) {
        self.set([]);
    }

    /// The fault for this request, if one is due.
    fn draw(&self, request: &Request) -> Option<Fault> {
        let now = Instant::now();
        let mut rules = self.0.rules.lock();
        let active = rules.iter_mut().find(|a| a.matches(request, now))?;
        if let Some(left) = &mut active.left {
            *left -= 1;
        }
        Some(active.rule.fault)
    }

    async fn until_changed(&self) {
        let mut changed = self.0.changed.subscribe();
        // The sender lives in the handle itself, so this ends with a change only.
        let _ = changed.changed().await;
    }
}

impl ActiveRule {
    fn matches(&self, request: &Request, now: Instant) -> bool {
        self.left != Some(0)
            && self.until.is_none_or(|until| now < until)
            && self.rule.operation.is_none_or(|operation| operation == request.operation())
            && self.rule.key_contains.as_deref().is_none_or(|part| key(request).contains(part))
    }
}

fn key(request: &Request) -> &str {
    match request {
        Request::Put { key, .. } | Request::Get { key, .. } | Request::Head { key } | Request::Delete { key } => key,
        Request::List { prefix, .. } => prefix,
    }
}

pub(super) struct Faulty {
    pub(super) inner: Box<dyn Layer>,
    pub(super) faults: FaultHandle,
}

#[async_trait]
impl Layer for Faulty {
    async fn call(&self, request: &Request) -> Result<Reply, Failure> {
        let Some(fault) = self.faults.draw(request) else {
            return self.inner.call(request).await;
        };
        match fault {
            Fault::ErrorBefore => Err(Failure::Unknown("injected, before".to_owned())),
            Fault::ErrorAfter => {
                self.inner.call(request).await?;
                Err(Failure::Unknown("injected, after".to_owned()))
            }
            Fault::Unavailable => Err(Failure::NotDone("injected 503".to_owned())),
            Fault::Refused => Err(Failure::Refused("injected".to_owned())),
            Fault::NotFound => Err(Failure::NotFound),
            Fault::FlipByte => self.inner.call(request).await.map(flip),
            Fault::Hold => {
                self.faults.until_changed().await;
                self.inner.call(request).await
            }
            Fault::DelayMs(ms) => {
                sleep(Duration::from_millis(ms)).await;
                self.inner.call(request).await
            }
        }
    }
}

/// Changes one bit in the middle.
fn flip(reply: Reply) -> Reply {
    match reply {
        Reply::Bytes(bytes) if !bytes.is_empty() => {
            let mut bytes = bytes.to_vec();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            Reply::Bytes(bytes.into())
        }
        other => other,
    }
}
