"""Consumer groups whose members come and go, with the exact verification of what they read."""

import contextlib
import threading
import uuid

from confluent_kafka import Consumer, KafkaException, TopicPartition

from harness import wait_for
from workload import QUIET, check_error

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
