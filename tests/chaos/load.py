"""The clients of a run: they write and read through all proxies while things break, and write down what they were told.

No client here judges anything, and none gives up: one that is told of a fatal error is thrown away and made anew,
under a new name, as an application would do.
"""

import itertools
import random
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from history import payload

QUIET = {"log_level": 0, "error_cb": lambda error: None}
#: A client notices within this time that a proxy is frozen.
IMPATIENT = {"socket.timeout.ms": 10_000, "reconnect.backoff.max.ms": 1000, "topic.metadata.refresh.interval.ms": 5000}
#: Every producer is set up in its own way. The last one gives records up, so that some are of unknown fate. When
#: librdkafka does that, it begins a new epoch and sends what is left again, whether or not it has arrived before: from
#: then on its promise of idempotence is void, so its sends are written down as those of a producer without.
FLAVOURS = [{"linger.ms": 5}, {"linger.ms": 50, "compression.type": "lz4"},
            {"linger.ms": 0, "compression.type": "zstd", "batch.num.messages": 20},
            {"linger.ms": 5, "message.timeout.ms": 15_000, "compression.type": "gzip"}]


def topic_partition(key, offset=0):
    topic, partition = key.rsplit("/", 1)
    return TopicPartition(topic, int(partition), offset)


def name_of(error):
    return error.name().lstrip("_")


class Client(threading.Thread):
    """A thread that works until it is told to stop."""

    def __init__(self, recorder, name, keys, seed):
        super().__init__(name=name, daemon=True)
        self.recorder, self.keys = recorder, keys
        self.chosen = random.Random(f"{seed} {name}")
        self.stopping = threading.Event()
        self.failure = None
        self._incarnations = itertools.count()

    def new_process(self, proxy=None):
        number = next(self._incarnations)
        return self.recorder.process(f"{self.name}.{number}" if number else self.name, proxy)

    def run(self):
        try:
            self.work()
        except Exception as error:  # told by whoever ends the run: a client that ended unseen would prove nothing
            self.failure = f"{type(error).__name__}: {error}"


class Sender(Client):
    """An idempotent producer. Values are its number and a counter, so no value comes twice in a run."""

    numbers = itertools.count(1)

    def __init__(self, recorder, name, keys, seed, proxies, rate, settings):
        super().__init__(recorder, name, keys, seed)
        self.rate, self.sent, self.open = rate, 0, 0
        self.acknowledged, self.unknown = 0, 0
        self.fatal = None
        self.is_idempotent = "message.timeout.ms" not in settings
        self.settings = {"bootstrap.servers": ",".join(p.bootstrap for p in proxies), "enable.idempotence": True,
                         "message.timeout.ms": 300_000, **QUIET, **IMPATIENT, **settings}
        self._begin()

    def _begin(self):
        self.process = self.new_process()
        self.values = itertools.count(next(self.numbers) << 40)
        self.fatal = None
        self.producer = Producer({**self.settings, "error_cb": self._on_error})

    def _on_error(self, error):
        if error.fatal():
            self.fatal = error

    def work(self):
        begun, due = time.monotonic(), 0
        while not self.stopping.is_set():
            if self.fatal is not None:
                self._replace()
            self._send(self.chosen.choice(self.keys))
            due += 1
            ahead = due / self.rate - (time.monotonic() - begun)
            if ahead < -5:  # after a stall it goes on at its rate and does not make up for lost time
                begun, due = time.monotonic(), 0
            self.producer.poll(max(0.0, min(ahead, 0.2)))

    def _send(self, key):
        process, value, where = self.process, next(self.values), topic_partition(key)
        op = process.invoke("send", key, value=value, idempotent=self.is_idempotent)
        self.open += 1

        def delivered(error, message):
            self.open -= 1
            if error is None:
                self.acknowledged += 1
                process.complete(op, "ok", "send", key, offset=message.offset())
                return
            # The library does not tell whether it ever sent the record, and it may have sent it more than once.
            self.unknown += 1
            process.complete(op, "info", "send", key, error=name_of(error))

        try:
            self.producer.produce(where.topic, payload(value), partition=where.partition, on_delivery=delivered)
            self.sent += 1
        except BufferError:
            self.open -= 1
            process.complete(op, "fail", "send", key, error="QUEUE_FULL")
            self.producer.poll(0.5)
        except KafkaException as error:
            self.open -= 1
            process.complete(op, "fail", "send", key, error=name_of(error.args[0]))
            self.fatal = self.fatal or error.args[0]

    def _replace(self):
        self.process.note(f"{self.process.name} is replaced: {name_of(self.fatal)}")
        self.producer.purge()
        self.producer.flush(10)
        self._begin()

    def drain(self, seconds):
        """Waits for the answers that are owed; returns how many never came."""
        deadline = time.monotonic() + seconds
        while self.open and time.monotonic() < deadline and self.fatal is None:
            self.producer.flush(1)
        if self.fatal is not None:
            self._replace()
        return self.open


def new_consumer(bootstrap, **settings):
    return Consumer({"bootstrap.servers": bootstrap, "group.id": "chaos", "enable.auto.commit": False,
                     "auto.offset.reset": "error", "check.crcs": True, "enable.partition.eof": False,
                     "fetch.wait.max.ms": 200, "fetch.error.backoff.ms": 100, **QUIET, **IMPATIENT, **settings})


def is_out_of_range(message, key, offset):
    """Whether this says that the offset does not exist. What was said of an earlier question may come late."""
    error = message.error()
    return (error is not None and error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
            and f"{message.topic()}/{message.partition()}" == key and message.offset() == offset)


class Follower(Client):
    """A consumer that reads all partitions from their beginning on, as the records come."""

    def __init__(self, recorder, name, keys, seed, proxies, proxy):
        super().__init__(recorder, name, keys, seed)
        self.proxy, self.records = proxy, 0
        self.bootstrap = ",".join(p.bootstrap for p in proxies)

    def work(self):
        process = self.new_process(self.proxy)
        consumer = new_consumer(self.bootstrap)
        positions = dict.fromkeys(self.keys, 0)
        consumer.assign([topic_partition(key, 0) for key in self.keys])
        try:
            while not self.stopping.is_set():
                at = time.monotonic_ns()
                by_key = {}
                for message in consumer.consume(500, timeout=0.3):
                    by_key.setdefault(f"{message.topic()}/{message.partition()}", []).append(message)
                for key, messages in by_key.items():
                    good = [m for m in messages if m.error() is None]
                    refused = any(is_out_of_range(m, key, positions[key]) for m in messages)
                    if good:
                        self._write_down(process, key, good, positions, at)
                    if refused:
                        op = process.invoke("poll", key, at=at, **{"from": positions[key]})
                        process.complete(op, "fail", "poll", key, error="OFFSET_OUT_OF_RANGE")
                        consumer.assign([topic_partition(key, positions[key]) for key in self.keys])
        finally:
            consumer.close()

    def _write_down(self, process, key, messages, positions, at):
        op = process.invoke("poll", key, at=at, **{"from": positions[key]})
        process.complete(op, "ok", "poll", key, records=self.recorder.records(messages))
        positions[key] = messages[-1].offset() + 1
        self.records += len(messages)


class Jumper(Client):
    """A consumer of each proxy, of which one or the other reads a few records at some offset, old or new."""

    def __init__(self, recorder, name, keys, seed, proxies):
        super().__init__(recorder, name, keys, seed)
        self.proxies, self.jumps = proxies, 0
        self.ends = dict.fromkeys(keys, 0)

    def work(self):
        consumers = {p: new_consumer(p.bootstrap, **{"queued.min.messages": 1}) for p in self.proxies}
        processes = {p: self.recorder.process(f"{self.name}-{p.settings['proxy.id']}", p.settings["proxy.id"])
                     for p in self.proxies}
        try:
            while not self.stopping.wait(0.2):
                proxy, key = self.chosen.choice(self.proxies), self.chosen.choice(self.keys)
                end = self.ends[key]
                offset = self.chosen.choice([0, end, max(0, end - 5), self.chosen.randint(0, end), end + 1_000_000])
                self._jump(consumers[proxy], processes[proxy], key, offset)
        finally:
            for consumer in consumers.values():
                consumer.close()

    def _jump(self, consumer, process, key, offset):
        process.complete(process.invoke("assign", key), "ok", "assign", key, offset=offset)
        at = time.monotonic_ns()
        where = topic_partition(key, offset)
        consumer.assign([where])
        messages = consumer.consume(50, timeout=2.0)
        op = process.invoke("poll", key, at=at, **{"from": offset})
        good = [m for m in messages if m.error() is None]
        if good:
            self.jumps += 1
            self.ends[key] = max(self.ends[key], good[-1].offset() + 1)
            process.complete(op, "ok", "poll", key, records=self.recorder.records(good))
            return
        errors = [m.error() for m in messages if m.error() is not None]
        told = ",".join(map(name_of, errors))
        if any(is_out_of_range(message, key, offset) for message in messages):
            told = "OFFSET_OUT_OF_RANGE"
        process.complete(op, "fail", "poll", key, error=told or "nothing came")


class Poller(Client):
    """Asks one proxy where partitions end and begin."""

    def __init__(self, recorder, name, keys, seed, proxy):
        super().__init__(recorder, name, keys, seed)
        self.proxy, self.answers = proxy, 0

    def work(self):
        process = self.new_process(self.proxy.settings["proxy.id"])
        consumer = new_consumer(self.proxy.bootstrap)
        try:
            while not self.stopping.wait(0.3):
                self._ask(process, consumer, self.chosen.choice(self.keys))
        finally:
            consumer.close()

    def _ask(self, process, consumer, key):
        ends, starts = process.invoke("end", key), process.invoke("start", key)
        try:
            start, end = consumer.get_watermark_offsets(topic_partition(key), timeout=10)
        except KafkaException as error:
            for op, f in ((ends, "end"), (starts, "start")):
                process.complete(op, "fail", f, key, error=name_of(error.args[0]))
            return
        self.answers += 1
        process.complete(ends, "ok", "end", key, offset=end)
        process.complete(starts, "ok", "start", key, offset=start)


def wait_for_one_end(proxies, keys, seconds):
    """Waits until all proxies tell the same ends, and tell them again: what clients gave up may still have come."""
    consumers = [new_consumer(proxy.bootstrap) for proxy in proxies]
    deadline, before = time.monotonic() + seconds, None
    try:
        while True:
            ends = [[c.get_watermark_offsets(topic_partition(key), timeout=seconds)[1] for key in keys]
                    for c in consumers]
            if ends == before and all(one == ends[0] for one in ends):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"the proxies do not agree on one end within {seconds} s: {ends}")
            before = ends
            time.sleep(3)
    finally:
        for consumer in consumers:
            consumer.close()


def read_all(recorder, proxy, key, seconds):
    """The closing full read of a partition through one proxy. Returns how many records there were."""
    number = proxy.settings["proxy.id"]
    process = recorder.process(f"final-{number}-{key}", number)
    consumer = new_consumer(proxy.bootstrap)
    deadline = time.monotonic() + seconds
    try:
        ends, starts = process.invoke("end", key), process.invoke("start", key)
        start, end = consumer.get_watermark_offsets(topic_partition(key), timeout=seconds)
        process.complete(ends, "ok", "end", key, offset=end)
        process.complete(starts, "ok", "start", key, offset=start)
        consumer.assign([topic_partition(key, start)])
        position = start
        while position < end:
            op = process.invoke("poll", key, final=True, **{"from": position})
            messages = consumer.consume(2000, timeout=0.5)
            good = [m for m in messages if m.error() is None]
            process.complete(op, "ok", "poll", key, final=True, records=recorder.records(good))
            position = good[-1].offset() + 1 if good else position
            if any(is_out_of_range(message, key, position) for message in messages):
                raise RuntimeError(f"proxy {number}: {key} is said to have no offset {position}, and to end at {end}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"proxy {number}: {key} was read only to {position} of {end} in {seconds} s")
        return end - start
    finally:
        consumer.close()
