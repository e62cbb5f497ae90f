"""What an operator does in an ordinary week: clients move to the proxy one by one, brokers and proxies are restarted.

No client may be told of an error that its library does not repeat by itself, and every record is read once, in order.
"""

import contextlib
import itertools
import subprocess
import tempfile
import threading
import time
import uuid

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from harness import CACHE, ROOT, wait_for
from matrix_driver import JVM
from workload import (QUIET, Load, check_error, new_topic, read_and_verify, read_values, running_proxies,
                      wait_until_healthy)

PARTITIONS = 4


class Group:
    """A consumer group whose members come and go, and everything that they read, in the order in which it came."""

    def __init__(self, topics, protocol="classic"):
        self.topics, self.protocol = topics, protocol
        self.id = f"group-{uuid.uuid4().hex[:8]}"
        self.offsets = {(topic, partition): [] for topic in topics for partition in range(PARTITIONS)}
        self.failures = []
        self.members = []
        self._lock = threading.Lock()

    def join(self, bootstrap):
        member = Member(self, bootstrap)
        self.members.append(member)
        return member

    def took(self, message):
        with self._lock:
            self.offsets[message.topic(), message.partition()].append(message.offset())

    def count(self, topic=None):
        return sum(len(offsets) for (name, _), offsets in self.offsets.items() if topic in (None, name))

    def check(self):
        assert not self.failures, f"members of {self.id} failed: {self.failures[:3]}"

    def is_shared(self):
        """Every member holds partitions, and together they hold each one once."""
        self.check()
        held = [partition for member in self.members for partition in member.held]
        return all(member.held for member in self.members) and sorted(held) == sorted(self.offsets)

    def wait_until_shared(self):
        wait_for(self.is_shared, 60, f"{len(self.members)} members to share all partitions")

    def wait_for_more(self, topic, records, seconds=120):
        wanted = self.count(topic) + records
        wait_for(lambda: self.failures or self.count(topic) >= wanted, seconds, f"{records} more records of {topic}, "
                 f"when so many were read of each: { {name: self.count(name) for name in self.topics} }")
        self.check()

    def finish(self, ends):
        """Waits until the members have read to the ends, ends them, and verifies: no gap, no duplicate, in order."""
        wait_for(lambda: self.failures or self.count() >= sum(ends.values()), 60, f"the group to read to {ends}")
        for member in list(self.members):
            member.leave()
        self.check()
        for partition, offsets in self.offsets.items():
            wrong = next((i for i, offset in enumerate(offsets) if offset != i), None)
            assert wrong is None, f"{partition}: offset {offsets[wrong]} was read when {wrong} was due"
            assert len(offsets) == ends[partition], f"{partition}: {len(offsets)} of {ends[partition]} were read"

    def end(self):
        for member in list(self.members):
            with contextlib.suppress(AssertionError):
                member.leave()


class Member:
    """A consumer on a thread of its own. It commits what it has read when a partition is taken from it."""

    def __init__(self, group, bootstrap):
        self.held = set()
        self._group = group
        self._leaving = threading.Event()
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap,
            "group.id": group.id,
            "group.protocol": group.protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 1000,
            "error_cb": self._on_error,
            **QUIET,
        })
        self._next = {}
        self._thread = threading.Thread(target=self._run, name=f"member of {group.id}", daemon=True)
        self._thread.start()

    def leave(self):
        self._leaving.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "a member did not leave"
        self._group.members.remove(self)

    def _on_error(self, error):
        if error.fatal():
            self._group.failures.append(str(error))

    def _on_assign(self, _, partitions):
        # A new set each time: others look at it meanwhile.
        self.held = self.held | {(p.topic, p.partition) for p in partitions}

    def _on_revoke(self, consumer, partitions):
        done = {(p.topic, p.partition) for p in partitions}
        read = [TopicPartition(*p, self._next.pop(p)) for p in done if p in self._next]
        try:
            if read:
                consumer.commit(offsets=read, asynchronous=False)
        except KafkaException as error:
            self._group.failures.append(f"a commit at the end of {done} failed: {error}")
        self.held = self.held - done

    def _on_lost(self, _, partitions):
        self._group.failures.append(f"partitions were lost: {partitions}")

    def _run(self):
        try:
            self._consumer.subscribe(self._group.topics, on_assign=self._on_assign, on_revoke=self._on_revoke,
                                     on_lost=self._on_lost)
            while not self._leaving.is_set():
                message = self._consumer.poll(0.1)
                if message is None:
                    continue
                check_error(message)
                if message.error() is None:
                    self._group.took(message)
                    self._next[message.topic(), message.partition()] = message.offset() + 1
            self._consumer.close()
        except Exception as error:
            self._group.failures.append(repr(error))


@contextlib.contextmanager
def reading(topics, protocol="classic"):
    group = Group(topics, protocol)
    try:
        yield group
    finally:
        group.end()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_half_behind_the_proxy_and_half_direct_reads_everything_once(kafka3, proxy3, protocol):
    topic = new_topic(proxy3.bootstrap, PARTITIONS, diskless=False)
    doors = [proxy3.bootstrap, kafka3.bootstrap]
    loads = [Load(door, topic, PARTITIONS, sender=sender, rate=500) for sender, door in enumerate(doors)]
    try:
        with reading([topic], protocol) as group:
            for door in doors:
                group.join(door)
            group.wait_until_shared()
            for door in doors * 2:
                joined = group.join(door)
                group.wait_until_shared()
                group.wait_for_more(topic, 500)
                # The longest there leaves; the others take over, on either side.
                first = group.members[0]
                assert first is not joined
                first.leave()
                group.wait_until_shared()
                group.wait_for_more(topic, 500)
            for load in loads:
                load.finish()
            read = read_and_verify(proxy3.bootstrap, topic, loads)
            group.finish({(topic, partition): end for partition, end in enumerate(read.ends)})
    finally:
        for load in loads:
            load.stop_sending()


class JavaLoad:
    """Kafka's console producer, idempotent with five requests in flight. Its records are the numbers from 0, in the
    order of which the client spreads them over the partitions."""

    SETTINGS = ["linger.ms=5", "batch.size=1000", "request.timeout.ms=30000", "retries=2147483647"]

    def __init__(self, bootstrap, topic, rate=500):
        self.topic, self.rate, self.sent = topic, rate, 0
        self._stopping = threading.Event()
        self._log = tempfile.TemporaryFile("w+")
        settings = [word for setting in self.SETTINGS for word in ["--command-property", setting]]
        self._process = subprocess.Popen(
            ["java", *JVM, "-cp", f"{CACHE}/kafka-libs/*",
             f"-Dlog4j2.configurationFile={ROOT}/tests/kafka/log4j2.properties",
             "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", bootstrap, "--topic", topic, *settings],
            stdin=subprocess.PIPE, stdout=self._log, stderr=self._log)
        self._thread = threading.Thread(target=self._feed, name=f"java load of {topic}", daemon=True)
        self._thread.start()

    def _feed(self):
        begun = time.monotonic()
        with contextlib.suppress(BrokenPipeError):
            while not self._stopping.is_set():
                self._process.stdin.write(f"{self.sent}\n".encode())
                self._process.stdin.flush()
                self.sent += 1
                self._stopping.wait(max(0, self.sent / self.rate - (time.monotonic() - begun)))

    def check(self):
        assert self._process.poll() is None, f"the producer of {self.topic} ended: {self._told()}"

    def _told(self):
        self._log.seek(0)
        return self._log.read()[-3000:]

    def finish(self, seconds=60):
        """The producer sends what it has and ends by itself, with nothing to complain of."""
        self._stopping.set()
        self._thread.join(seconds)
        self._process.stdin.close()
        code = self._process.wait(seconds)
        told = self._told()
        assert code == 0 and "ERROR" not in told and "Exception" not in told, told

    def end(self):
        self._stopping.set()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)
        self._log.close()

    def verify(self, values):
        """Each number is there once, and in each partition they rise."""
        numbers = [[int(value) for value in one] for one in values]
        assert all(lower < higher for one in numbers for lower, higher in itertools.pairwise(one))
        assert sorted(number for one in numbers for number in one) == list(range(self.sent))


def run_under_load(bootstrap, roll):
    """Both producers on topics of both kinds, and a group of two members that reads them all, while `roll` happens.

    `roll` is given a function that waits until all of these have gone on.
    """
    native_topics, java_topics = ([new_topic(bootstrap, PARTITIONS, diskless) for diskless in (False, True)]
                                  for _ in range(2))
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(reading(native_topics + java_topics))
        for _ in range(2):
            group.join(bootstrap)
        group.wait_until_shared()
        loads = [Load(bootstrap, topic, PARTITIONS, rate=500) for topic in native_topics]
        for load in loads:
            stack.callback(load.stop_sending)
        java = [JavaLoad(bootstrap, topic) for topic in java_topics]
        for load in java:
            stack.callback(load.end)

        def go_on():
            for topic in native_topics + java_topics:
                for load in [*loads, *java]:
                    load.check()
                group.wait_for_more(topic, 500)
            for load in loads:
                load.wait_for_acknowledged(100, 120)

        go_on()
        roll(go_on)
        go_on()
        for load in [*loads, *java]:
            load.finish()
        ends = {}
        for load in loads:
            reading_back = read_and_verify(bootstrap, load.topic, [load])
            ends |= {(load.topic, partition): end for partition, end in enumerate(reading_back.ends)}
        for load in java:
            values = read_values(bootstrap, load.topic, PARTITIONS)
            load.verify(values)
            ends |= {(load.topic, partition): len(one) for partition, one in enumerate(values)}
        group.finish(ends)


def test_a_rolling_restart_of_all_brokers_is_not_noticed(kafka3):
    with running_proxies(kafka3) as [proxy]:
        def roll(go_on):
            for broker in (1, 2, 3):
                kafka3.terminate_broker(broker)
                try:
                    go_on()
                finally:
                    kafka3.start_broker(broker)
                    wait_until_healthy(kafka3)

        run_under_load(proxy.bootstrap, roll)


def test_a_proxy_that_is_drained_and_started_again_beside_another_is_not_noticed(kafka3):
    with running_proxies(kafka3, zones=("zone-a", "zone-a")) as [first, second]:
        def roll(go_on):
            for _ in range(2):
                assert first.terminate() == 0
                go_on()
                first.start()
                go_on()

        run_under_load(f"{first.bootstrap},{second.bootstrap}", roll)
        assert "did not drain in time" not in first.log.read_text()
