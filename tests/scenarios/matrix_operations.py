"""What every client is asked to do: one function an operation, which checks what came of it from the other side.

The client under test runs in its driver. What it wrote is read, and what it shall read is written, by confluent-kafka in
this process. A function returns nothing if all was as it is directly at Kafka, or `REFUSED` where a diskless topic
refuses clearly; whatever else happens is an exception.
"""

import json
import time

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from clients import name_for, numbered, seconds_apart
from harness import wait_for
from matrix_driver import Missing, Refused
from matrix_expected import READS_EMPTY_AS_NULL

REFUSED = "refused"
POLICY_VIOLATION = 44
UNKNOWN_TOPIC_OR_PARTITION = 3
GROUP_SECONDS = 60
QUIET_SECONDS = 0.7  # for nothing to come, where nothing may

OPERATIONS = {}


def operation(title):
    def add(function):
        OPERATIONS[function.__name__] = (title, function)
        return function

    return add


class Cell:
    """One client on one kind of topic."""

    def __init__(self, driver, clients, kind, idempotent=True, strict=None):
        self.driver, self.clients, self.kind, self.idempotent = driver, clients, kind, idempotent
        self.strict = strict or self

    def topic(self, partitions=1, config=None):
        return self.clients.topic(self.kind, "matrix", partitions, config)

    def ask(self, op, **arguments):
        """A call, repeated while the broker that was asked has not heard of the topic yet."""

        def answered():
            try:
                return [self.driver(op, **arguments)]
            except Refused as error:
                if error.code != UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                return None

        return wait_for(answered, 30, f"an answer to {op}")[0]

    def produce(self, topic, records, **options):
        options = {"partition": 0, "idempotent": self.idempotent, **options}
        return self.ask("produce", topic=topic, records=records, **options)

    def read(self, topic, count):
        """What the topic holds, read by the other client, as records of a driver."""
        return [of_message(m) for m in self.clients.read(topic, count)]

    def reader(self, topic):
        """A member that reads partition 0 from its beginning: assigned, where the client can do that."""
        member = name_for("member", "reader")
        try:
            self.driver("assign", member=member, topic=topic, partition=0, at="begin")
        except Missing:
            self.driver("join", member=member, group=name_for("group", "reader"), topics=[topic])
        return member

    def join(self, group, **options):
        member = name_for("member", "joined")
        self.driver("join", member=member, group=group, **options)
        return member

    def take(self, member, count, seconds=GROUP_SECONDS):
        return self.driver("take", member=member, count=count, seconds=seconds)["records"]

    def nothing_comes_to(self, member):
        came = self.take(member, 1, QUIET_SECONDS)
        assert not came, f"came though nothing may: {came}"

    def as_the_client_reads(self, record):
        """A record as this client shows it, at Kafka as well."""
        if self.driver.client not in READS_EMPTY_AS_NULL:
            return record
        headers = {"headers": [[name, value or None] for name, value in record.get("headers", [])]}
        return {**record, **{f: record[f] or None for f in ["key", "value"] if f in record}, **headers}

    def read_itself(self, topic, count):
        member = self.reader(topic)
        try:
            return self.take(member, count)
        finally:
            self.driver("leave", member=member)

    def fill(self, topic, count, partitions, prefix):
        """So many values in each of the first partitions, written by the other client; returns them."""
        errors, written = [], []
        producer = self.clients.producer(linger_ms=5)
        # Each broker hears of new partitions in its own time.
        wait_for(lambda: len(producer.list_topics(topic, 30).topics[topic].partitions) >= partitions, 30,
                 f"{partitions} partitions of {topic}")
        for partition in range(partitions):
            for i in range(count):
                written.append(f"{prefix}-{partition}-{i}")
                producer.produce(topic, written[-1], partition=partition, on_delivery=lambda e, _: errors.append(e))
        assert producer.flush(60) == 0 and not any(errors), errors
        return written


def of_message(m):
    long = m.value() is not None and len(m.value()) > 1000 and m.value() == b"x" * len(m.value())
    return {
        "offset": m.offset(), "key": text(m.key()), "value": {"fill": len(m.value())} if long else text(m.value()),
        "headers": [[name, text(value)] for name, value in m.headers() or []], "timestamp": m.timestamp()[1],
    }


def text(data):
    return None if data is None else data.decode()


def same(read, written):
    """The records that were read are those that were written, field by field, with offsets from 0."""
    assert [r["offset"] for r in read] == list(range(len(written))), [r["offset"] for r in read]
    for got, wanted in zip(read, written):
        for field, value in wanted.items():
            assert got[field] == value, f"{field} is {str(got[field])[:200]!r} instead of {str(value)[:200]!r}"


def of_values(count, prefix="value"):
    return [{"value": value.decode()} for value in numbered(count, prefix)]


def written_and_read(cell, records, **options):
    """Written by the client, read by the other one and by itself."""
    topic = cell.topic()
    answer = cell.produce(topic, records, **options)
    assert answer.get("first") in (0, None), f"acknowledged as offset {answer['first']}"
    same(cell.read(topic, len(records)), records)
    same(cell.read_itself(topic, len(records)), [cell.as_the_client_reads(r) for r in records])
    return topic


def refused_by_policy(action):
    try:
        action()
    except Refused as error:
        assert error.code == POLICY_VIOLATION or "policy" in str(error).lower(), str(error)
        return REFUSED
    raise AssertionError("it was not refused")


# Topics


@operation("create a topic")
def create(cell):
    topic = name_for(cell.kind, "matrix")
    cell.driver("create", topic=topic, partitions=3, config={"retention.ms": "7200000"})
    assert cell.clients.config(topic)["retention.ms"] == "7200000"
    assert cell.clients.is_diskless(topic) == (cell.kind == "diskless")
    assert partitions_of(cell, topic) == 3


def partitions_of(cell, topic):
    return len(cell.clients.admin.list_topics(topic, timeout=30).topics[topic].partitions)


@operation("list topics")
def list_topics(cell):
    topic = cell.topic()
    wait_for(lambda: topic in cell.driver("topics")["topics"], 30, "the topic in the list")


@operation("describe a topic")
def describe_topic(cell):
    topic = cell.topic(partitions=3)
    described = wait_for(lambda: cell.ask("describe", topic=topic)["partitions"], 30, "the topic to be described")
    assert sorted(p["partition"] for p in described) == [0, 1, 2]
    virtual = [p["leader"] > 100_000 for p in described]
    assert virtual == [cell.kind == "diskless"] * 3 and all(p["replicas"] >= 1 for p in described), described


@operation("create partitions")
def create_partitions(cell):
    topic = cell.topic()
    cell.ask("create_partitions", topic=topic, total=3)
    wait_for(lambda: partitions_of(cell, topic) == 3, 30, "three partitions")
    cell.fill(topic, 1, 3, "after")


@operation("describe settings")
def describe_configs(cell):
    topic = cell.topic(config={"retention.ms": "7200000"})
    cell.clients.config(topic)  # once the brokers know of it
    configs = cell.ask("configs", topic=topic)["configs"]
    assert configs["retention.ms"] == "7200000"
    assert (configs.get("diskless.enable") == "true") == (cell.kind == "diskless"), configs


@operation("alter settings")
def alter_configs(cell):
    topic = cell.topic()
    cell.clients.config(topic)
    cell.ask("alter", topic=topic, name="retention.ms", value="3600000")
    wait_for(lambda: cell.clients.config(topic)["retention.ms"] == "3600000", 30, "the new setting")
    assert cell.clients.is_diskless(topic) == (cell.kind == "diskless")


@operation("delete records")
def delete_records(cell):
    topic = cell.topic()
    cell.fill(topic, 10, 1, "value")
    if cell.kind == "diskless":
        outcome = refused_by_policy(lambda: cell.ask("delete_records", topic=topic, partition=0, before=5))
        assert watermarks(cell, topic) == (0, 10)
        return outcome
    cell.ask("delete_records", topic=topic, partition=0, before=5)
    wait_for(lambda: watermarks(cell, topic) == (5, 10), 30, "the records to be gone")


def watermarks(cell, topic):
    """Beginning and end of partition 0; asked again while a proxy cannot prove the end yet, which librdkafka does not do."""
    consumer = cell.clients.consumer("not-used")

    def told():
        try:
            return consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.OFFSET_NOT_AVAILABLE:
                raise
            return None

    try:
        return wait_for(told, 30, f"the offsets of {topic}")
    finally:
        consumer.close()


@operation("delete a topic")
def delete_topic(cell):
    topic = cell.topic()
    cell.ask("delete_topic", topic=topic)
    wait_for(lambda: topic not in cell.clients.admin.list_topics(timeout=30).topics, 30, "the topic to be gone")


# Producing


@operation("produce, idempotent")
def idempotent(cell):
    topic = cell.topic()
    for i in range(3):
        answer = cell.produce(topic, of_values(20, f"round-{i}"), idempotent=True)
        assert answer.get("first") in (20 * i, None), answer
    same(cell.read(topic, 60), [record for i in range(3) for record in of_values(20, f"round-{i}")])


@operation("produce, not idempotent")
def not_idempotent(cell):
    if cell.kind == "classic":
        written_and_read(cell, of_values(20), idempotent=False)
        return None
    strict = cell.strict
    topic = strict.topic()
    outcome = refused_by_policy(lambda: strict.produce(topic, of_values(1), idempotent=False))
    assert watermarks(strict, topic) == (0, 0)
    return outcome


def codec(name):
    def check(cell):
        records = [{"value": "compressible " * 75 + str(i)} for i in range(100)]
        topic = written_and_read(cell, records, codec=name)
        if cell.kind == "diskless":
            # Here it can be seen that the client did compress.
            found = json.loads(cell.clients.proxy.get(f"/topics/{topic}"))
            assert 0 < found["bytes"] < 30_000, f"{found['bytes']} bytes of 98,000 are in the store"

    check.__name__ = name
    return operation(f"codec {name}")(check)


for each in ["gzip", "snappy", "lz4", "zstd"]:
    codec(each)


@operation("headers")
def headers(cell):
    records = [{"value": "a", "headers": [["one", "1"], ["two", "2"], ["empty", ""]]}, {"value": "b", "headers": []}]
    written_and_read(cell, records)


@operation("null keys and values")
def nulls(cell):
    written_and_read(cell, [{"key": None, "value": "v"}, {"key": "k", "value": None}, {"key": "", "value": "v"}])


@operation("empty, 1-byte and 1 MB records")
def sizes(cell):
    written_and_read(cell, [{"value": ""}, {"value": "y"}, {"value": {"fill": 1_040_000}}, {"value": "after"}])


@operation("timestamps")
def timestamps(cell):
    written_and_read(cell, [{"value": "v", "timestamp": at + i} for i, at in enumerate(seconds_apart(5))])


# Consuming


@operation("consume, assigned")
def assigned(cell):
    # Kafka gives each of its brokers one to lead.
    topic = cell.topic(partitions=3)
    cell.fill(topic, 10, 3, "value")
    for partition in range(3):
        member = name_for("member", "assigned")
        cell.driver("assign", member=member, topic=topic, partition=partition, at={"offset": 5})
        try:
            assert values(cell.take(member, 5)) == [f"value-{partition}-{i}" for i in range(5, 10)]
            cell.nothing_comes_to(member)
        finally:
            cell.driver("leave", member=member)


def values(records):
    return [r["value"] for r in records]


@operation("seek: offset, time, beginning, end")
def seek(cell):
    topic = cell.topic()
    times = seconds_apart(10)
    cell.clients.produce(topic, numbered(10), timestamps=times)
    member = cell.reader(topic)
    try:
        assert len(cell.take(member, 10)) == 10
        for at, first in [({"offset": 6}, 6), ({"timestamp": times[3]}, 3), ("begin", 0)]:
            cell.driver("seek", member=member, topic=topic, partition=0, at=at)
            came = [r["offset"] for r in cell.take(member, 10 - first)]
            assert came == list(range(first, 10)), f"after a seek to {at}: {came}"
        cell.driver("seek", member=member, topic=topic, partition=0, at={"offset": 0})
        cell.driver("seek", member=member, topic=topic, partition=0, at="end")
        cell.clients.produce(topic, [b"after"])
        assert values(cell.take(member, 1)) == ["after"]
    finally:
        cell.driver("leave", member=member)


@operation("group: commit and resume")
def group(cell):
    resume(cell, {})


def resume(cell, options):
    topic = cell.topic(partitions=2)
    written = cell.fill(topic, 10, 2, "value")
    group_id = name_for("group", "resume")
    first = cell.join(group_id, topics=[topic], **options)
    try:
        assert sorted(values(cell.take(first, 20))) == sorted(written)
        for partition, offset in [(0, 5), (1, 10)]:
            cell.driver("commit", member=first, topic=topic, partition=partition, offset=offset)
    finally:
        cell.driver("leave", member=first)
    second = cell.join(group_id, topics=[topic], **options)
    try:
        assert values(cell.take(second, 5)) == written[5:10]
        cell.nothing_comes_to(second)
    finally:
        cell.driver("leave", member=second)
    return group_id


@operation("group: members join and leave")
def rebalance(cell):
    share(cell, {})


def share(cell, options, partitions=4):
    """A second member comes, gets some of the records and goes: no record is missed, none comes from before the commit."""
    topic = cell.topic(partitions=partitions)
    group_id = name_for("group", "share")
    first = cell.join(group_id, topics=[topic], **options)
    early = cell.fill(topic, 5, partitions, "early")
    assert sorted(values(cell.take(first, 5 * partitions))) == sorted(early)
    for partition in range(partitions):
        cell.driver("commit", member=first, topic=topic, partition=partition, offset=5)
    second = cell.join(group_id, topics=[topic], **options)
    written, seen = [], []
    deadline = time.monotonic() + GROUP_SECONDS
    while not (shared := cell.take(second, 1, 0.3)):
        assert time.monotonic() < deadline, "the second member got nothing"
        written += cell.fill(topic, 1, partitions, f"later-{len(written)}")
        seen += cell.take(first, 1000, 0.1)
    seen += shared + cell.take(second, 1000, 0.1)
    cell.driver("leave", member=second)
    written += cell.fill(topic, 5, partitions, "last")
    while set(written) - set(values(seen)):
        assert time.monotonic() < deadline + GROUP_SECONDS, f"missing: {set(written) - set(values(seen))}"
        seen += cell.take(first, 1000, 0.2)
    cell.driver("leave", member=first)
    assert all(r["offset"] >= 5 for r in seen), "records from before the committed offset came again"
    return group_id


@operation("group of KIP-848")
def kip_848(cell):
    for group_id in [resume(cell, {"protocol": "consumer"}), share(cell, {"protocol": "consumer"})]:
        listed = cell.clients.admin.list_consumer_groups().result().valid
        assert {g.group_id: g.type.name for g in listed}[group_id] == "CONSUMER"


@operation("subscribe to a pattern")
def pattern(cell):
    mark = name_for(cell.kind, "pattern")
    topics = [cell.clients.create(f"{mark}-{i}") for i in range(2)]
    others = cell.topic()
    for topic in [*topics, others]:
        cell.clients.produce(topic, [topic.encode()])
    member = cell.join(name_for("group", "pattern"), pattern=f"{mark}-.*")
    try:
        assert sorted(values(cell.take(member, 2))) == topics
        cell.nothing_comes_to(member)
    finally:
        cell.driver("leave", member=member)


@operation("pause and resume")
def pause(cell):
    topic = cell.topic(partitions=2)
    cell.fill(topic, 1, 2, "before")
    member = cell.join(name_for("group", "pause"), topics=[topic])
    try:
        assert len(cell.take(member, 2)) == 2
        cell.driver("pause", member=member, topic=topic, partition=0)
        cell.fill(topic, 3, 2, "while")
        assert values(cell.take(member, 3)) == ["while-1-0", "while-1-1", "while-1-2"]
        cell.nothing_comes_to(member)
        cell.driver("resume", member=member, topic=topic, partition=0)
        assert values(cell.take(member, 3)) == ["while-0-0", "while-0-1", "while-0-2"]
    finally:
        cell.driver("leave", member=member)


# Groups and the cluster


def with_group(cell, check):
    """Runs the check while a group with one member of this client reads a topic."""
    topic = cell.topic()
    cell.fill(topic, 1, 1, "value")
    group_id = name_for("group", "admin")
    member = cell.join(group_id, topics=[topic])
    try:
        assert len(cell.take(member, 1)) == 1
        check(group_id)
    finally:
        cell.driver("leave", member=member)


@operation("list groups")
def list_groups(cell):
    def check(group_id):
        assert group_id in cell.driver("groups")["groups"]

    with_group(cell, check)


@operation("describe a group")
def describe_group(cell):
    def check(group_id):
        described = cell.driver("describe_group", group=group_id)
        assert (described["state"].upper(), described["members"]) == ("STABLE", 1), described

    with_group(cell, check)


@operation("describe log directories")
def log_dirs(cell):
    topic = cell.topic()
    wait_for(lambda: topic in cell.driver("log_dirs", topic=topic)["topics"], 30, "the topic in a directory")


@operation("describe the cluster")
def cluster(cell):
    described = cell.driver("cluster")
    proxy = cell.clients.proxy
    ports = {port for _, _, port in described["brokers"]}
    assert all(proxy.port <= port <= proxy.port + 110 for port in ports), f"a way past the proxy: {described}"
    brokers = len(proxy.settings["upstream.bootstrap.servers"])
    virtual = 100_000 + proxy.settings["proxy.id"]
    assert {broker for broker, _, _ in described["brokers"]} == {*range(1, brokers + 1), virtual}, described
    assert described.get("cluster") in (None, cell.clients.admin.list_topics(timeout=30).cluster_id)
