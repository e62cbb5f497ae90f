//! Consumers that follow a partition or jump about in it, and clients that ask where it ends.

use std::sync::Arc;
use std::time::Duration;

use sidestream::fetch::{FetchedPartition, ListedOffset, OffsetSpec};
use sidestream::history::{EventType, Function};
use sidestream::types::ErrorCode;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::batches;
use super::chance::Chance;
use super::network::Connection;
use super::proxy::Ask;
use super::recorder::Process;
use super::world::{Key, World};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Reader {
    pub(crate) world: Arc<World>,
    pub(crate) key: Key,
    pub(crate) chance: Arc<Chance>,
    pub(crate) process: Process,
}

impl Reader {
    pub(crate) fn new(world: &Arc<World>, name: &str, key: Key) -> Self {
        let chance = Arc::new(Chance::of(world.seed, name));
        let process = world.recorder.process(name.to_owned());
        Self { world: Arc::clone(world), key, chance, process }
    }

    /// Reads on from the beginning, through one proxy after another.
    pub(crate) async fn follow(self) {
        let mut next = 0;
        while self.world.is_loaded() {
            let connection = Connection::open(&self.world, &self.chance).await;
            let hops_after = 1 + self.chance.below(40);
            for _ in 0..hops_after {
                match self.poll(&connection, next, false).await {
                    Some(after) => next = after,
                    None => break,
                }
            }
        }
    }

    /// Reads a little here and a little there.
    pub(crate) async fn jump(self) {
        let mut end = 0;
        while self.world.is_loaded() {
            sleep(self.chance.millis(100, 2_000)).await;
            let connection = Connection::open(&self.world, &self.chance).await;
            if let Some(now) = self.ask(&connection, OffsetSpec::Latest).await {
                end = now;
            }
            let mut next = self.chance.between(0, end);
            self.process.note(Function::Assign, &self.key.name, |event| event.offset = Some(next));
            for _ in 0..self.chance.below(4) {
                match self.poll(&connection, next, false).await {
                    Some(after) => next = after,
                    None => break,
                }
            }
        }
    }

    /// Asks where the partition ends and starts, now here, now there.
    pub(crate) async fn measure(self) {
        while self.world.is_loaded() {
            sleep(self.chance.millis(50, 1_500)).await;
            let connection = Connection::open(&self.world, &self.chance).await;
            let spec = if self.chance.percent(80.0) { OffsetSpec::Latest } else { OffsetSpec::Earliest };
            let _ = self.ask(&connection, spec).await;
        }
    }

    /// Reads everything there is, after all is healed. `None`: the proxy was being restarted, or is not sure yet.
    pub(crate) async fn read_all(&self, machine: usize) -> Result<Option<i64>, String> {
        let Some(asks) = self.world.machines[machine].running().and_then(|running| running.connect()) else {
            return Ok(None);
        };
        let (reply, answer) = oneshot::channel();
        let end = Ask::Offset { partition: self.key.partition, spec: OffsetSpec::Latest, reply };
        let _ = asks.send(end).await;
        let Ok(Some(listed)) = answer.await else { return Ok(None) };
        if listed.error == ErrorCode::OffsetNotAvailable {
            return Ok(None);
        }
        if listed.error != ErrorCode::None {
            return Err(format!("no end is known: {:?}", listed.error));
        }
        let end = listed.offset;
        let mut next = 0;
        while next < end {
            let op = self.begin_poll(next, true);
            let (reply, answer) = oneshot::channel();
            let fetch = Ask::Fetch { partition: self.key.partition, from: next, reply };
            let _ = asks.send(fetch).await;
            let Ok(fetched) = answer.await else { return Ok(None) };
            let fetched = fetched.ok_or("the partition is not known")?;
            let after = self.end_poll(op, next, Some(&fetched), true).ok_or("the final read failed")?;
            if after == next {
                return Err(format!("{} cannot be read beyond {next} of {end}", self.key.name));
            }
            next = after;
        }
        Ok(Some(end))
    }

    async fn ask(&self, connection: &Connection, spec: OffsetSpec) -> Option<i64> {
        let f = if spec == OffsetSpec::Latest { Function::End } else { Function::Start };
        let op = self.process.invoke(f, &self.key.name, |event| event.proxy = Some(connection.machine.to_string()));
        let (reply, answer) = oneshot::channel();
        let sent = connection.send(Ask::Offset { partition: self.key.partition, spec, reply }).await;
        let listed = match sent {
            Ok(()) => timeout(REQUEST_TIMEOUT, answer).await.ok().and_then(Result::ok).flatten(),
            Err(()) => None,
        };
        self.complete_ask(op, f, listed)
    }

    fn complete_ask(&self, op: u64, f: Function, listed: Option<ListedOffset>) -> Option<i64> {
        let good = listed.filter(|listed| listed.error == ErrorCode::None).map(|listed| listed.offset);
        let how = if good.is_some() { EventType::Ok } else { EventType::Fail };
        self.process.complete(op, how, f, &self.key.name, |event| {
            event.offset = good;
            event.error = listed.filter(|_| good.is_none()).map(|listed| format!("{:?}", listed.error));
        });
        good
    }

    /// Polls once; gives the next offset to ask for.
    async fn poll(&self, connection: &Connection, from: i64, is_final: bool) -> Option<i64> {
        let op = self.begin_poll(from, is_final);
        let (reply, answer) = oneshot::channel();
        let sent = connection.send(Ask::Fetch { partition: self.key.partition, from, reply }).await;
        let fetched = match sent {
            Ok(()) => timeout(REQUEST_TIMEOUT, answer).await.ok().and_then(Result::ok).flatten(),
            Err(()) => None,
        };
        self.end_poll(op, from, fetched.as_ref(), is_final)
    }

    fn begin_poll(&self, from: i64, is_final: bool) -> u64 {
        self.process.invoke(Function::Poll, &self.key.name, |event| {
            event.from = Some(from);
            event.is_final = is_final.then_some(true);
        })
    }

    fn end_poll(&self, op: u64, from: i64, fetched: Option<&FetchedPartition>, is_final: bool) -> Option<i64> {
        let fail = |error: Option<String>| {
            self.process.complete(op, EventType::Fail, Function::Poll, &self.key.name, |event| event.error = error);
            None
        };
        let Some(fetched) = fetched else { return fail(None) };
        match fetched.error {
            ErrorCode::None => {}
            ErrorCode::OffsetOutOfRange => return fail(Some("OFFSET_OUT_OF_RANGE".to_owned())),
            other => return fail(Some(format!("{other:?}"))),
        }
        let bytes: Vec<u8> = fetched.records.concat();
        let records = batches::read(&bytes, from).expect("a consumer can read what it is given");
        let next = records.last().map_or(from, |last| last.offset + 1);
        self.process.complete(op, EventType::Ok, Function::Poll, &self.key.name, |event| {
            event.records = Some(records);
            event.is_final = is_final.then_some(true);
        });
        Some(next)
    }
}
