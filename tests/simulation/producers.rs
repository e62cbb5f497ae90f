//! Producers as client libraries are: an idempotent one has five batches of a partition on their way and sends again,
//! in order, whatever was not acknowledged; one that is not idempotent sends once and then does not know.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesOrdered;
use sidestream::history::{EventType, Function};
use sidestream::produce::BatchResult;
use sidestream::types::{ErrorCode, TopicPartition};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::batches;
use super::chance::Chance;
use super::network::Connection;
use super::proxy::Ask;
use super::recorder::Process;
use super::world::{Key, World};

const IN_FLIGHT: usize = 5;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

struct Batch {
    sequence: i32,
    bytes: Bytes,
    /// Each record's value and operation.
    records: Vec<(u64, u64)>,
}

pub(crate) struct Producer {
    pub(crate) world: Arc<World>,
    pub(crate) id: u32,
    pub(crate) key: Key,
    pub(crate) chance: Arc<Chance>,
    pub(crate) process: Process,
    pub(crate) is_idempotent: bool,
    next_value: u64,
    next_sequence: i32,
}

impl Producer {
    pub(crate) fn new(world: &Arc<World>, id: u32, key: Key, is_idempotent: bool) -> Self {
        let chance = Arc::new(Chance::of(world.seed, &format!("producer {id}")));
        // Some come to the end of the sequence numbers.
        let next_sequence = 0;
        let process = world.recorder.process(format!("producer-{id}"));
        Self { world: Arc::clone(world), id, key, chance, process, is_idempotent, next_value: 0, next_sequence }
    }

    fn make(&mut self) -> Batch {
        let count = 1 + self.chance.index(3);
        let records: Vec<(u64, u64)> = (0..count)
            .map(|_| {
                self.next_value += 1;
                let value = (u64::from(self.id) << 32) | self.next_value;
                let op = self.process.invoke(Function::Send, &self.key.name, |event| {
                    event.value = Some(value);
                    event.idempotent = Some(self.is_idempotent);
                });
                (value, op)
            })
            .collect();
        let values: Vec<u64> = records.iter().map(|(value, _)| *value).collect();
        let sequence = self.next_sequence;
        self.next_sequence += i32::try_from(count).expect("few");
        let producer = if self.is_idempotent { (i64::from(self.id), 0, sequence) } else { (-1, -1, -1) };
        let bytes = batches::batch(producer, &values, self.world.time.now_ms());
        Batch { sequence, bytes, records }
    }

    fn complete(&self, batch: &Batch, how: EventType, base_offset: Option<i64>, error: Option<ErrorCode>) {
        for (delta, (value, op)) in (0..).zip(&batch.records) {
            self.process.complete(*op, how, Function::Send, &self.key.name, |event| {
                event.value = Some(*value);
                event.offset = base_offset.map(|base| base + delta);
                event.error = error.map(|error| format!("{error:?}"));
            });
        }
    }

    /// Runs until the world says that it is time, and then until everything is acknowledged.
    pub(crate) async fn run(mut self) {
        if self.is_idempotent { self.run_idempotent().await } else { self.run_once_only().await }
    }

    async fn pause(&self) {
        let typical = self.world.pause_between_batches;
        sleep(self.chance.skewed(typical)).await;
    }

    async fn run_idempotent(&mut self) {
        let mut unacknowledged: VecDeque<Batch> = VecDeque::new();
        while self.world.is_loaded() || !unacknowledged.is_empty() {
            let connection = Connection::open(&self.world, &self.chance).await;
            self.use_connection(&connection, &mut unacknowledged).await;
            sleep(self.chance.millis(10, 500)).await;
        }
    }

    /// Sends what is not acknowledged, then new batches, until something fails.
    async fn use_connection(&mut self, connection: &Connection, unacknowledged: &mut VecDeque<Batch>) {
        let mut on_the_way = FuturesOrdered::new();
        let partition = self.key.partition;
        let mut sent = 0;
        // Then it looks for another proxy, as clients do whose metadata has changed.
        let mut new_batches = 1 + self.chance.below(12);
        loop {
            while sent < unacknowledged.len() {
                match send(connection, partition, &unacknowledged[sent].bytes).await {
                    Some(answer) => on_the_way.push_back(answer),
                    None => return,
                }
                sent += 1;
            }
            let may_send = unacknowledged.len() < IN_FLIGHT && new_batches > 0 && self.world.is_loaded();
            if on_the_way.is_empty() && !may_send {
                return;
            }
            tokio::select! {
                biased;
                Some(answer) = on_the_way.next(), if !on_the_way.is_empty() => {
                    let Some(Ok(placed)) = answer else {
                        self.note_refusal(&answer, unacknowledged);
                        // What was sent after it is answered, one way or another, before it is sent again.
                        if self.chance.percent(70.0) {
                            while on_the_way.next().await.is_some() {}
                        }
                        return;
                    };
                    if let Some(batch) = unacknowledged.pop_front() {
                        self.complete(&batch, EventType::Ok, Some(placed.base_offset), None);
                        sent -= 1;
                    }
                }
                () = self.pause(), if may_send => {
                    let batch = self.make();
                    unacknowledged.push_back(batch);
                    new_batches -= 1;
                }
            }
        }
    }

    fn note_refusal(&self, answer: &Option<BatchResult>, unacknowledged: &VecDeque<Batch>) {
        let Some(Err(rejected)) = answer else { return };
        self.world.count(&format!("refused {:?}", rejected.code));
        let is_final = matches!(rejected.code, ErrorCode::InvalidProducerEpoch | ErrorCode::InvalidRecord);
        let sequence = unacknowledged.front().map(|batch| batch.sequence);
        assert!(!is_final, "{}: sequence {sequence:?} was refused for good: {rejected:?}", self.process.name);
    }

    async fn run_once_only(&mut self) {
        while self.world.is_loaded() {
            let connection = Connection::open(&self.world, &self.chance).await;
            while self.world.is_loaded() {
                self.pause().await;
                let batch = self.make();
                let answer = match send(&connection, self.key.partition, &batch.bytes).await {
                    Some(answer) => answer.await,
                    None => None,
                };
                match answer {
                    Some(Ok(placed)) => self.complete(&batch, EventType::Ok, Some(placed.base_offset), None),
                    // Nothing of it is written, and never will be: that is what the code says.
                    Some(Err(rejected)) if rejected.code == ErrorCode::NotEnoughReplicas => {
                        self.complete(&batch, EventType::Fail, None, Some(rejected.code));
                    }
                    Some(Err(rejected)) => self.complete(&batch, EventType::Info, None, Some(rejected.code)),
                    None => {
                        self.complete(&batch, EventType::Info, None, None);
                        break;
                    }
                }
            }
        }
    }
}

/// The answer to one batch; `None` when the connection broke or nothing came in time.
async fn send(
    connection: &Connection,
    partition: TopicPartition,
    batch: &Bytes,
) -> Option<impl Future<Output = Option<BatchResult>> + use<>> {
    let (reply, answer) = oneshot::channel();
    connection.send(Ask::Produce { partition, batch: batch.clone(), reply }).await.ok()?;
    Some(async move { timeout(REQUEST_TIMEOUT, answer).await.ok()?.ok() })
}
