//! The metadata log as one partition of Kafka, with what can happen to it.
//!
//! Appends of one client are in order, up to the first that is lost: after it nothing of this client gets in, as with
//! an idempotent producer. What is on its way lands, whoever has given up on it, also after its process died.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt as _;
use parking_lot::Mutex;
use sidestream::metadata_log::{AppendError, Appending, LogError, LogRecord, MetadataLog, Tail};
use sidestream::types::LogPosition;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep};

use super::chance::Chance;
use super::crash_points::{Point, Probe};
use super::faults::Present;
use super::time::SimTime;

/// Records that are on their way at a time.
const GROUP: usize = 32;
/// librdkafka's `delivery.timeout.ms` as the proxies set it.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct SimLog {
    state: Mutex<State>,
    end: AtomicI64,
    moved: Notify,
    faults: Arc<Present>,
    time: SimTime,
}

#[derive(Default)]
struct State {
    records: Vec<LogRecord>,
    start: usize,
    /// The leader's clock against the true time; it changes with the leader.
    skew_ms: i64,
}

impl SimLog {
    pub(crate) fn new(faults: Arc<Present>, time: SimTime) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), end: AtomicI64::new(0), moved: Notify::new(), faults, time })
    }

    pub(crate) fn change_leader(&self, skew_ms: i64) {
        self.state.lock().skew_ms = skew_ms;
    }

    /// How many records were ever appended.
    pub(crate) fn len(&self) -> i64 {
        self.end.load(Ordering::Relaxed)
    }

    fn append(&self, bytes: Vec<u8>) -> LogPosition {
        let mut state = self.state.lock();
        let position = LogPosition(i64::try_from(state.records.len()).expect("few records"));
        let append_time_ms = self.time.now_ms() + state.skew_ms;
        state.records.push(LogRecord { position, append_time_ms, bytes: Bytes::from(bytes) });
        self.end.store(position.0 + 1, Ordering::Relaxed);
        self.moved.notify_waiters();
        position
    }

    fn read(&self, from: i64, count: usize) -> Vec<LogRecord> {
        let state = self.state.lock();
        let from = usize::try_from(from).expect("not negative").min(state.records.len());
        let to = (from + count).min(state.records.len());
        state.records[from..to].to_vec()
    }
}

/// One proxy's way to the log.
pub(crate) struct LogLink {
    log: Arc<SimLog>,
    proxy: usize,
    chance: Arc<Chance>,
    client: Mutex<Client>,
    probe: Probe,
}

struct Waiting {
    record: Vec<u8>,
    answer: oneshot::Sender<Result<LogPosition, AppendError>>,
}

struct Client(mpsc::UnboundedSender<Waiting>);

impl LogLink {
    pub(crate) fn new(log: Arc<SimLog>, proxy: usize, chance: Chance, probe: Probe) -> Arc<Self> {
        let chance = Arc::new(chance);
        let client = Mutex::new(Client::start(&log, &chance));
        Arc::new(Self { log, proxy, chance, client, probe })
    }

    async fn round_trip(&self) -> Result<(), LogError> {
        sleep(self.chance.skewed(Duration::from_millis(3))).await;
        if self.log.faults.look(|faults| faults.log.is_offline) {
            sleep(Duration::from_secs(1)).await;
            return Err(LogError::Unavailable("the partition has no leader".to_owned()));
        }
        Ok(())
    }
}

impl Client {
    fn start(log: &Arc<SimLog>, chance: &Arc<Chance>) -> Self {
        let (queue, waiting) = mpsc::unbounded_channel();
        tokio::spawn(deliver(Arc::clone(log), Arc::clone(chance), waiting));
        Self(queue)
    }
}

/// What becomes of one group of appends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Told,
    AnswerLost,
    Dropped,
    Late,
}

fn fate(faults: &Present, chance: &Chance) -> Fate {
    let log = faults.now().log;
    if chance.percent(log.dropped) {
        Fate::Dropped
    } else if chance.percent(log.late) {
        Fate::Late
    } else if chance.percent(log.answer_lost) {
        Fate::AnswerLost
    } else {
        Fate::Told
    }
}

/// Takes the appends of one client to the log. Ends when the client is gone or something of it was lost.
async fn deliver(log: Arc<SimLog>, chance: Arc<Chance>, mut waiting: mpsc::UnboundedReceiver<Waiting>) {
    let mut group = Vec::new();
    while waiting.recv_many(&mut group, GROUP).await > 0 {
        sleep(chance.skewed(Duration::from_millis(3))).await;
        while log.faults.look(|faults| faults.log.is_offline) {
            sleep(Duration::from_millis(200)).await;
        }
        let fate = fate(&log.faults, &chance);
        let began = Instant::now();
        if fate == Fate::Late {
            sleep(chance.millis(1_000, 30_000)).await;
        }
        let (records, answers): (Vec<_>, Vec<_>) =
            group.drain(..).map(|waiting| (waiting.record, waiting.answer)).unzip();
        let positions: Vec<LogPosition> = match fate {
            Fate::Dropped => Vec::new(),
            Fate::Told | Fate::AnswerLost | Fate::Late => {
                records.into_iter().map(|record| log.append(record)).collect()
            }
        };
        if fate == Fate::Told {
            sleep(chance.skewed(Duration::from_millis(1))).await;
            for (answer, position) in answers.into_iter().zip(positions) {
                let _ = answer.send(Ok(position));
            }
            continue;
        }
        // The client gives up after its time-out, and takes nothing more after an error.
        let patience = DELIVERY_TIMEOUT.saturating_sub(began.elapsed()).mul_f64(0.1 * chance.below(11) as f64);
        sleep(patience).await;
        let unknown = || Err(AppendError::Unknown("no answer".to_owned()));
        answers.into_iter().for_each(|answer| drop(answer.send(unknown())));
        waiting.close();
        while let Some(never_sent) = waiting.recv().await {
            let _ = never_sent.answer.send(unknown());
        }
        return;
    }
}

#[async_trait]
impl MetadataLog for LogLink {
    fn append(&self, record: Vec<u8>) -> Appending {
        let (answer, answered) = oneshot::channel();
        // The dead send nothing.
        let is_dead = self.probe.reach(Point::AppendSent) || self.probe.is_dead();
        let sent = if is_dead { Ok(()) } else { self.client.lock().0.send(Waiting { record, answer }) };
        let probe = self.probe.clone();
        async move {
            if sent.is_err() {
                return Err(AppendError::NotAppended("the client has failed".to_owned()));
            }
            let answer = answered.await;
            probe.pass(Point::AppendAnswered).await;
            answer.unwrap_or_else(|_| Err(AppendError::Unknown("the client is gone".to_owned())))
        }
        .boxed()
    }

    fn renew(&self) {
        *self.client.lock() = Client::start(&self.log, &self.chance);
    }

    fn tail(&self, from: LogPosition) -> Result<Tail, LogError> {
        let (groups, receiver) = mpsc::channel(4);
        let (log, chance, proxy) = (Arc::clone(&self.log), Arc::clone(&self.chance), self.proxy);
        let probe = self.probe.clone();
        tokio::spawn(async move {
            let reading = read_on(&log, &chance, (proxy, probe), from.0, &groups);
            tokio::select! {
                biased;
                () = groups.closed() => {}
                () = reading => {}
            }
        });
        Ok(Tail { groups: receiver })
    }

    async fn start(&self) -> Result<LogPosition, LogError> {
        self.round_trip().await?;
        Ok(LogPosition(i64::try_from(self.log.state.lock().start).expect("few records")))
    }

    async fn end(&self) -> Result<LogPosition, LogError> {
        self.round_trip().await?;
        let end = self.log.len();
        let is_stale = self.chance.percent(self.log.faults.look(|faults| faults.log.stale_ends));
        Ok(LogPosition(if is_stale { end - self.chance.between(0, end.min(20)) } else { end }))
    }
}

async fn read_on(
    log: &SimLog,
    chance: &Chance,
    (proxy, probe): (usize, Probe),
    from: i64,
    groups: &mpsc::Sender<Result<Vec<LogRecord>, LogError>>,
) {
    let mut next = from;
    loop {
        loop {
            let moved = log.moved.notified();
            if log.len() > next {
                break;
            }
            moved.await;
        }
        sleep(chance.skewed(Duration::from_millis(3))).await;
        while log.faults.look(|faults| faults.log.is_offline || faults.log.deaf.contains(&proxy)) {
            sleep(Duration::from_millis(200)).await;
        }
        let count = 1 + chance.index(64);
        let group = log.read(next, count);
        next += i64::try_from(group.len()).expect("few records");
        if probe.reach(Point::RecordsRead) {
            return;
        }
        if groups.send(Ok(group)).await.is_err() {
            return;
        }
    }
}
