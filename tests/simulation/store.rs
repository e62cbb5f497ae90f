//! The object store, with what can happen to it. What is on its way lands, whoever has given up on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use sidestream::object_storage::{Failure, Layer, ListedObject, Reply, Request};
use tokio::time::sleep;

use super::chance::Chance;
use super::crash_points::{Point, Probe};
use super::faults::{Present, StoreFaults};
use super::time::SimTime;

pub(crate) struct SimStore {
    objects: Mutex<BTreeMap<String, (Bytes, i64)>>,
    faults: Arc<Present>,
    time: SimTime,
}

impl SimStore {
    pub(crate) fn new(faults: Arc<Present>, time: SimTime) -> Arc<Self> {
        Arc::new(Self { objects: Mutex::default(), faults, time })
    }

    fn put(&self, key: &str, bytes: Bytes) {
        let written = self.time.now_ms();
        let before = self.objects.lock().insert(key.to_owned(), (bytes.clone(), written));
        assert!(before.is_none_or(|(before, _)| before == bytes), "{key} was overwritten with other bytes");
    }

    pub(crate) fn size(&self, key: &str) -> Option<u64> {
        self.objects.lock().get(key).map(|(bytes, _)| bytes.len() as u64)
    }

    fn carry_out(&self, request: &Request) -> Result<Reply, Failure> {
        match request {
            Request::Put { key, parts } => {
                self.put(key, join(parts));
                Ok(Reply::Done)
            }
            Request::Get { key, range } => {
                let objects = self.objects.lock();
                let (bytes, _) = objects.get(key).ok_or(Failure::NotFound)?;
                let (from, to) =
                    (usize::try_from(range.start).expect("small"), usize::try_from(range.end).expect("small"));
                if to > bytes.len() {
                    return Err(Failure::Corrupt(format!("the object has {} bytes", bytes.len())));
                }
                Ok(Reply::Bytes(bytes.slice(from..to)))
            }
            Request::Head { key } => {
                let objects = self.objects.lock();
                objects.get(key).map(|(bytes, _)| Reply::Size(bytes.len() as u64)).ok_or(Failure::NotFound)
            }
            Request::Delete { key } => {
                self.objects.lock().remove(key);
                Ok(Reply::Done)
            }
            Request::List { prefix, after, limit } => {
                let objects = self.objects.lock();
                let below = objects.iter().filter(|(key, _)| key.starts_with(prefix.as_str()));
                let found = below.filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after)).take(*limit);
                let listed = found.map(|(key, (bytes, written))| ListedObject {
                    key: key.clone(),
                    size: bytes.len() as u64,
                    last_modified_ms: *written,
                });
                Ok(Reply::Objects(listed.collect()))
            }
        }
    }
}

fn join(parts: &[Bytes]) -> Bytes {
    let mut whole = BytesMut::new();
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    whole.freeze()
}

/// One proxy's way to the store.
pub(crate) struct StoreLink {
    store: Arc<SimStore>,
    chance: Chance,
    probe: Probe,
}

impl StoreLink {
    pub(crate) fn new(store: Arc<SimStore>, chance: Chance, probe: Probe) -> Self {
        Self { store, chance, probe }
    }

    async fn put(&self, request: &Request, faults: &StoreFaults) -> Result<Reply, Failure> {
        if self.chance.percent(faults.late) {
            let (store, request) = (Arc::clone(&self.store), request.clone());
            let late = self.chance.millis(500, 60_000);
            tokio::spawn(async move {
                sleep(late).await;
                let _ = store.carry_out(&request);
            });
            return std::future::pending().await;
        }
        self.store.carry_out(request)
    }

    fn spoil(&self, reply: Reply) -> Reply {
        match reply {
            Reply::Bytes(bytes) if !bytes.is_empty() => {
                let mut spoiled = BytesMut::from(&bytes[..]);
                let at = self.chance.index(spoiled.len());
                spoiled[at] ^= 1;
                Reply::Bytes(spoiled.freeze())
            }
            reply => reply,
        }
    }
}

#[async_trait]
impl Layer for StoreLink {
    async fn call(&self, request: &Request) -> Result<Reply, Failure> {
        let faults = self.store.faults.now().store;
        let is_put = matches!(request, Request::Put { .. });
        if is_put {
            self.probe.pass(Point::PutSent).await;
        }
        let typical = Duration::from_millis(if is_put { 40 } else { 15 }) * faults.slow.max(1);
        sleep(self.chance.skewed(typical)).await;
        if self.chance.percent(faults.refused) {
            return Err(Failure::NotDone("503 SlowDown".to_owned()));
        }
        if self.chance.percent(faults.stuck) {
            return std::future::pending().await;
        }
        let done = if is_put { self.put(request, &faults).await } else { self.store.carry_out(request) };
        if is_put {
            self.probe.pass(Point::PutDone).await;
        }
        if self.chance.percent(faults.done_not_told) {
            return Err(Failure::Unknown("500 after it was done".to_owned()));
        }
        if self.chance.percent(faults.wrong_byte) { done.map(|reply| self.spoil(reply)) } else { done }
    }
}
