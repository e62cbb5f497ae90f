"""Traffic whose every record can be told apart, and the exact verification of what became of it.

A record's value holds who sent it, to which partition, and the how-manieth it is; the rest follows from these. So a
reader knows without any bookkeeping whether a record is there once, in order, and with every byte.
"""

import collections
import contextlib
import dataclasses
import hashlib
import pathlib
import random
import struct
import tempfile
import threading
import time
import uuid

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from harness import Proxy, wait_for

# Lost connections are what scenarios are about; the library need not report each on the terminal.
QUIET = {"log_level": 0}
HEAD = struct.Struct(">IIQ")
WORDS = [w.encode() for w in "a log is an order of records and an order is all that a broker has to give".split()]


def _text(length):
    """Text that every codec can make smaller, but not to nothing."""
    chosen = random.Random(7)
    text = b""
    while len(text) < length:
        text += chosen.choice(WORDS) + b"%x " % chosen.randrange(1 << 16)
    return text[:length]


TEXT = _text(1 << 16)


def record_value(sender, partition, sequence, size):
    """The one value that this record can have."""
    start = (sequence * 61 + partition * 17 + sender * 7) % (len(TEXT) - size)
    return HEAD.pack(sender, partition, sequence) + TEXT[start:start + size - HEAD.size]


@contextlib.contextmanager
def running_proxies(kafka, zones=("zone-a",), settings=None, environment=None):
    """Proxies of one metadata log and one store, both new; what their logs say is shown when the scenario fails."""
    own = {"metadata.topic": f"__metadata_{uuid.uuid4().hex[:8]}", **(settings or {})}
    with tempfile.TemporaryDirectory(prefix="sidestream-store-") as store, contextlib.ExitStack() as stack:
        proxies = []
        for number, zone in enumerate(zones, start=1):
            proxies.append(Proxy(kafka, pathlib.Path(store), proxy_id=number, zone=zone, settings=own,
                                 environment=environment))
            stack.callback(proxies[-1].stop)
        try:
            yield proxies
        except BaseException:
            for proxy in proxies:
                print(f"--- the end of {proxy.log} ---\n{proxy.log.read_text()[-6000:]}")
            raise


def new_topic(bootstrap, partitions, diskless=True, config=None):
    """Creates a topic under a name of its own. A diskless one is asked for by setting, not by its name."""
    name = f"scenario-{uuid.uuid4().hex[:8]}"
    config = {**({"diskless.enable": "true"} if diskless else {}), **(config or {})}
    create_topic(bootstrap, name, partitions, config)
    return name


def create_topic(bootstrap, name, partitions, config):
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.create_topics([NewTopic(name, partitions, config=config)], request_timeout=30)[name].result(60)


class Load:
    """One idempotent producer on a thread of its own, until it is finished.

    It counts as failed what the client library has given up; what the library repeats by itself is not seen here.
    """

    def __init__(self, bootstrap, topic, partitions, sender=0, rate=2000, limit=None, size=100, settings=None):
        self.topic, self.partitions, self.sender, self.size = topic, partitions, sender, size
        self.rate, self.limit = rate, limit
        self.sent = [0] * partitions
        self.acknowledged = [{} for _ in range(partitions)]
        self.count = 0
        self.last_acknowledged_at = time.monotonic()
        self.longest_pause = 0.0
        self.failures = []
        self.fatal = []
        self._stopping = threading.Event()
        self._producer = Producer({
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "reconnect.backoff.max.ms": 1000,
            "queue.buffering.max.messages": 200_000,
            "error_cb": self._on_error,
            **QUIET,
            **(settings or {}),
        })
        self._thread = threading.Thread(target=self._run, name=f"load of {topic}", daemon=True)
        self._thread.start()

    def _on_error(self, error):
        if error.fatal():
            self.fatal.append(str(error))

    def _on_delivery(self, error, message):
        _, partition, sequence = HEAD.unpack_from(message.value())
        if error is not None:
            self.failures.append((partition, sequence, str(error)))
            return
        self.acknowledged[partition][sequence] = message.offset()
        self.count += 1
        now = time.monotonic()
        self.longest_pause = max(self.longest_pause, now - self.last_acknowledged_at)
        self.last_acknowledged_at = now

    def _run(self):
        begun, sent = time.monotonic(), 0
        while not self._stopping.is_set() and (self.limit is None or sent < self.limit):
            partition = sent % self.partitions
            value = record_value(self.sender, partition, self.sent[partition], self.size)
            try:
                self._producer.produce(self.topic, value, partition=partition, on_delivery=self._on_delivery)
            except BufferError:
                self._producer.poll(0.05)
                continue
            except KafkaException as error:
                self.fatal.append(str(error))
                return
            self.sent[partition] += 1
            sent += 1
            if self.rate is None:
                if sent % 500 == 0:
                    self._producer.poll(0)
            else:
                # Ahead of the pace: serves the callbacks until the next record is due.
                ahead = sent / self.rate - (time.monotonic() - begun)
                self._producer.poll(max(0.0, min(ahead, 0.1)))

    def wait_for_acknowledged(self, more, seconds=300):
        """Waits until so many more records than now are acknowledged."""
        wanted = self.count + more
        wait_for(lambda: self.count >= wanted or self.fatal or self.failures, seconds,
                 f"{more} more acknowledged records, of which {wanted - self.count} are missing")
        self.check()

    def check(self):
        assert not self.fatal, f"the producer of {self.topic} cannot go on: {self.fatal[:3]}"
        assert not self.failures, f"{len(self.failures)} records were given up, the first: {self.failures[:3]}"

    def stop_sending(self):
        self._stopping.set()
        self._thread.join(timeout=60)

    def finish(self, seconds=300):
        """Sends what is queued and waits for all acknowledgements. Every record must get one."""
        if self.limit is None:
            self._stopping.set()
        self._thread.join(timeout=seconds)
        assert not self._thread.is_alive(), "the load did not end"
        left = self._producer.flush(seconds)
        self.check()
        assert left == 0, f"{left} records of {self.topic} were not acknowledged within {seconds} s"
        assert [len(a) for a in self.acknowledged] == self.sent
        return self


@dataclasses.dataclass
class Reading:
    """What a full read of a topic has shown."""

    records: int
    ends: list
    digest: str


def read_messages(bootstrap, topic, partitions, seconds, settings=None):
    """All messages of a topic from offset 0 to its end; offsets must be dense."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": f"verification-{uuid.uuid4().hex[:8]}",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "check.crcs": True,
        **QUIET,
        **(settings or {}),
    })
    deadline = time.monotonic() + seconds
    offsets = [0] * partitions
    try:
        ends = [end_offset(consumer, topic, p) for p in range(partitions)]
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        while any(offset < end for offset, end in zip(offsets, ends)):
            assert time.monotonic() < deadline, f"read only to {offsets} of {ends} in {seconds} s"
            for message in consumer.consume(10_000, timeout=0.5):
                check_error(message)
                if message.error() is not None:
                    continue
                partition = message.partition()
                assert message.offset() == offsets[partition], (
                    f"partition {partition} gives offset {message.offset()}, expected {offsets[partition]}")
                offsets[partition] += 1
                yield message
        assert offsets == ends, f"more was read than there was when the read began: {offsets}, {ends}"
    finally:
        consumer.close()


def read_values(bootstrap, topic, partitions, seconds=300):
    """The values of all records, by partition."""
    values = [[] for _ in range(partitions)]
    for message in read_messages(bootstrap, topic, partitions, seconds):
        values[message.partition()].append(message.value())
    return values


def read_and_verify(bootstrap, topic, loads, seconds=300, settings=None):
    """Reads all of a topic by offset and compares it with what was sent, record by record.

    Offsets are dense from 0; each sender's records are there once, in order, with every byte, at the offsets that
    were acknowledged; nothing else is there.
    """
    partitions = loads[0].partitions
    senders = {load.sender: load for load in loads}
    digests = [hashlib.sha256() for _ in range(partitions)]
    next_sequences = collections.Counter()
    ends = [0] * partitions
    for message in read_messages(bootstrap, topic, partitions, seconds, settings):
        partition, value = message.partition(), message.value()
        at = f"partition {partition}, offset {message.offset()}"
        sender, sent_to, sequence = HEAD.unpack_from(value)
        assert sent_to == partition, f"{at}: was sent to partition {sent_to}"
        load, wanted = senders[sender], next_sequences[sender, partition]
        assert sequence == wanted, f"{at}: record {sequence} of sender {sender}, expected {wanted}"
        assert value == record_value(sender, partition, sequence, load.size), f"{at}: another value"
        acknowledged = load.acknowledged[partition].get(sequence)
        assert acknowledged == message.offset(), f"{at}: acknowledged at {acknowledged}"
        digests[partition].update(struct.pack(">qq", message.offset(), message.timestamp()[1]) + value)
        next_sequences[sender, partition] += 1
        ends[partition] = message.offset() + 1
    for load in loads:
        found = [next_sequences[load.sender, p] for p in range(partitions)]
        assert found == load.sent, f"sender {load.sender} sent {load.sent} records by partition, found {found}"
    whole = hashlib.sha256(b"".join(one.digest() for one in digests))
    return Reading(sum(ends), ends, whole.hexdigest())


def check_error(message):
    """Errors that the library repeats by itself are told as messages too; only these may pass."""
    error = message.error()
    if error is not None and not error.retriable() and error.code() != KafkaError._TRANSPORT:
        raise KafkaException(error)


def end_offset(consumer, topic, partition):
    return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]


def shadow_ends(kafka, topic, partitions):
    """The ends of a topic's logs in the brokers themselves."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "shadow", **QUIET})
    try:
        return [end_offset(consumer, topic, p) for p in range(partitions)]
    finally:
        consumer.close()


def metadata_client(bootstrap, settings=None):
    """A client that asks for metadata and never has a topic created by asking."""
    return Consumer({"bootstrap.servers": bootstrap, "group.id": "metadata", "allow.auto.create.topics": False, **QUIET,
                     **(settings or {})})


def described(bootstrap, topic=None, seconds=30):
    """Metadata as a client sees it."""
    consumer = metadata_client(bootstrap)
    try:
        return consumer.list_topics(topic, timeout=seconds)
    finally:
        consumer.close()


def wait_until_healthy(kafka, seconds=300):
    """Waits until every broker is back and every replica is in sync."""
    consumer = metadata_client(kafka.bootstrap)

    def is_healthy():
        with contextlib.suppress(KafkaException):
            metadata = consumer.list_topics(timeout=5)
            partitions = [p for topic in metadata.topics.values() for p in topic.partitions.values()]
            return len(metadata.brokers) == kafka.brokers and all(
                p.leader >= 0 and len(p.isrs) == len(p.replicas) for p in partitions)
        return False

    try:
        wait_for(is_healthy, seconds, "all brokers and replicas to be in sync")
    finally:
        consumer.close()
