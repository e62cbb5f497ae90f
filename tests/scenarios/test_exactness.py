"""Answers about records, to the letter: the same requests go to Kafka for a classic topic and to the virtual broker for a
diskless one that holds the same records, and the answers must agree in all but ids and names.

Requests are built by hand, so that nothing that a client library would hide stays hidden."""

import contextlib
import socket
import struct
import threading
import time
import uuid

import confluent_kafka
import pytest
from kafka.protocol.admin import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from kafka.protocol.consumer import (FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse,
                                     OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse)
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka.record.default_records import DefaultRecordBatchBuilder

from clients import Clients, name_for, seconds_apart
from harness import wait_for
from workload import running_proxies

NOT_LEADER, UNKNOWN_TOPIC, UNKNOWN_ID = 6, 3, 100
FIRST_FETCH, LAST_FETCH = 4, 15
OFFSET_VERSIONS = range(1, 11)
RESPONSES = {request: response for request, response in [
    (FetchRequest, FetchResponse), (ListOffsetsRequest, ListOffsetsResponse), (MetadataRequest, MetadataResponse),
    (OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse), (ProduceRequest, ProduceResponse),
    (DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse), (ApiVersionsRequest, ApiVersionsResponse)]}
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class Wire:
    """One connection to one broker."""

    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port), timeout=60)
        self.correlation_id = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, request, version, client_id):
        request.API_VERSION = version
        self.correlation_id += 1
        request.with_header(self.correlation_id, client_id)
        self.socket.sendall(request.encode(header=True, framed=True))

    def call(self, request, version, client_id="exactness"):
        self.send(request, version, client_id)
        frame = self._read(struct.unpack(">i", self._read(4))[0])
        response = RESPONSES[type(request)].decode(frame, version=version, header=True)
        assert response.header.correlation_id == self.correlation_id
        return response

    def _read(self, count):
        read = bytearray()
        while len(read) < count:
            some = self.socket.recv(count - len(read))
            assert some, "the connection was closed"
            read += some
        return bytes(read)


class Topic:
    """A topic, where each of its partitions is led, and connections to there."""

    def __init__(self, bootstrap, name):
        self.name = name
        host, port = bootstrap.split(",")[0].split(":")
        with Wire(host, int(port)) as wire:
            def described():
                asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)],
                                        allow_auto_topic_creation=False)
                response = wire.call(asked, 12)
                topic = response.topics[0]
                led = topic.error_code == 0 and all(p.error_code == 0 for p in topic.partitions)
                return response if led else None

            response = wait_for(described, 30, f"leaders of {name}")
        self.brokers = {b.node_id: (b.host, b.port) for b in response.brokers}
        self.id = response.topics[0].topic_id
        self.partitions = {p.partition_index: p for p in response.topics[0].partitions}

    def leader(self, partition=0):
        return Wire(*self.brokers[self.partitions[partition].leader_id])

    def epoch(self, partition=0):
        return self.partitions[partition].leader_epoch


@pytest.fixture(scope="module")
def clients(kafka1):
    """Of a proxy before one broker: so all partitions of a classic topic have one leader, as the diskless ones have."""
    with running_proxies(kafka1) as [proxy]:
        yield Clients(proxy)


@pytest.fixture
def both(clients, kafka1):
    """Creates a topic of each kind, the classic one as Kafka itself shows it."""
    def create(what, partitions=1, config=None):
        made = {}
        for kind, bootstrap in [("classic", kafka1.bootstrap), ("diskless", clients.bootstrap)]:
            made[kind] = Topic(bootstrap, clients.topic(kind, what, partitions, config))
        return made["classic"], made["diskless"]
    return create


def batch(values, timestamps=None):
    """One record batch, not compressed, of a producer that is idempotent but has only this one batch."""
    builder = DefaultRecordBatchBuilder(magic=2, compression_type=0, is_transactional=False, producer_id=next_producer(),
                                        producer_epoch=0, base_sequence=0, batch_size=1 << 24)
    for i, value in enumerate(values):
        timestamp = timestamps[i] if timestamps else int(time.time() * 1000)
        assert builder.append(i, timestamp=timestamp, key=None, value=value, headers=[])
    return bytes(builder.build())


def next_producer():
    """Producer ids that no coordinator has given out."""
    return uuid.uuid4().int % (1 << 40) + (1 << 41)


def produce_request(partitions):
    """`partitions` are (topic name, partition, batch)."""
    def topic(name, index, records):
        data = ProduceRequest.TopicProduceData.PartitionProduceData(index=index, records=records)
        return ProduceRequest.TopicProduceData(name=name, partition_data=[data])
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30000,
                          topic_data=[topic(*one) for one in partitions])


def write(topic, records, partition=0):
    def answer():
        with topic.leader(partition) as wire:
            response = wire.call(produce_request([(topic.name, partition, records)]), 9)
        return response.responses[0].partition_responses[0]

    def accepted():
        # A broker may not yet know that it leads a new partition. Then it has written nothing.
        answered = answer()
        return None if answered.error_code == NOT_LEADER else answered

    answered = wait_for(accepted, 30, "the leader of a new partition to know that it is")
    assert answered.error_code == 0, answered
    return answered.base_offset


def fetch_request(topics, version, session=(0, -1), forgotten=(), max_wait_ms=0, min_bytes=1, max_bytes=1 << 20,
                  partition_max_bytes=1 << 20, isolation_level=0, epoch=-1, rack_id=""):
    """`topics` are (Topic or topic id, partition, offset)."""
    by_id = version >= 13

    def naming(topic):
        if isinstance(topic, uuid.UUID):
            return {"topic_id": topic}
        return {"topic_id": topic.id} if by_id else {"topic": topic if isinstance(topic, str) else topic.name}

    kinds = FetchRequest.FetchTopic
    asked = [kinds(partitions=[kinds.FetchPartition(partition=partition, current_leader_epoch=epoch,
                                                    fetch_offset=offset, partition_max_bytes=partition_max_bytes)],
                   **naming(topic))
             for topic, partition, offset in topics]
    gone = [FetchRequest.ForgottenTopic(partitions=[partition], **naming(topic)) for topic, partition in forgotten]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, session_id=session[0],
                        isolation_level=isolation_level, session_epoch=session[1], topics=asked,
                        forgotten_topics_data=gone, rack_id=rack_id)


def told(response):
    """(partition, error, high watermark, bytes) of every partition in an answer, in its order."""
    return [(p.partition_index, p.error_code, p.high_watermark, len(p.records or b""))
            for t in response.responses for p in t.partitions]


# Offsets by timestamp

def list_offsets(topic, version, timestamp, wire, partition=0, epoch=-1, times=1):
    kinds = ListOffsetsRequest.ListOffsetsTopic
    asked = kinds.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, timeout_ms=30000,
                                 topics=[kinds(name=topic.name, partitions=[asked] * times)])
    found = wire.call(request, version).topics[0].partitions
    return [(p.partition_index, p.error_code, p.offset, p.timestamp, p.leader_epoch is not None and p.leader_epoch >= 0)
            for p in found]


def compare_offsets(both_topics, timestamps, versions=OFFSET_VERSIONS):
    classic, diskless = both_topics
    with classic.leader() as kafka, diskless.leader() as ours:
        for version in versions:
            for timestamp in timestamps:
                expected = list_offsets(classic, version, timestamp, kafka)
                assert list_offsets(diskless, version, timestamp, ours) == expected, f"{timestamp} in version {version}"


@pytest.mark.parametrize("codec", CODECS)
def test_offsets_are_listed_by_the_record_in_every_codec(both, clients, codec):
    topics = both("times")
    first = seconds_apart(1)[0]
    # In no order, in batches of up to 40 records, and the largest in the middle of a batch, twice.
    timestamps = [first + 1000 * ((i * 37) % 100) for i in range(100)]
    timestamps[50] = timestamps[57] = first + 200_000
    for topic in topics:
        clients.produce(topic.name, [b"v" * 50] * 100, timestamps=timestamps, compression_type=codec, linger_ms=500,
                        batch_num_messages=40)
    asked = [-1, -2, -3, -4, -5, -6, -7, 0, first - 1, first + 200_000, first + 200_001]
    compare_offsets(topics, asked)
    compare_offsets(topics, [first + 500 * n for n in range(0, 205)], versions=[10])
    # What Kafka answers is what looking at every record finds.
    with topics[1].leader() as wire:
        for target in range(first, first + 100_000, 7000):
            offset = next(i for i, t in enumerate(timestamps) if t >= target)
            assert list_offsets(topics[1], 10, target, wire)[0][2:4] == (offset, timestamps[offset])


def test_offsets_are_listed_by_the_record_in_batches_of_java_s_snappy(clients):
    """Java frames snappy's blocks in a way of its own."""
    topic = clients.topic("diskless", "java-snappy")
    lines = "\n".join("x" * 100 + str(i) for i in range(2000)) + "\n"
    clients.tool("org.apache.kafka.tools.ConsoleProducer", "--topic", topic, "--compression-codec", "snappy",
                 "--batch-size", "200000", "--timeout", "1000", input=lines)
    records = clients.read(topic, 2000)
    timestamps = [record.timestamp()[1] for record in records]
    assert len(set(timestamps)) > 1, "they must not all have the same time"
    consumer = clients.consumer(name_for("group", "times"))
    with contextlib.closing(consumer):
        for target in sorted(set(timestamps))[:20]:
            found = consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, target)], timeout=30)[0]
            assert found.offset == next(i for i, t in enumerate(timestamps) if t >= target)


def test_offsets_of_empty_partitions_and_wrong_requests_are_kafka_s(both):
    topics = both("empty")
    compare_offsets(topics, [-1, -2, -3, -4, -5, -6, -7, 0, 5], versions=OFFSET_VERSIONS)
    classic, diskless = topics
    with classic.leader() as kafka, diskless.leader() as ours:
        for partition, step, times in [(0, 1, 1), (0, -1, 1), (7, 0, 1), (-1, 0, 1), (0, 0, 2)]:
            answers = []
            for topic, wire in [(classic, kafka), (diskless, ours)]:
                answers.append(list_offsets(topic, 8, -1, wire, partition, max(topic.epoch() + step, -1), times))
            assert answers[0] == answers[1], (partition, step, times)


def test_offsets_of_log_append_time_topics_are_kafka_s(both):
    topics = both("append-time", config={"message.timestamp.type": "LogAppendTime"})
    for topic in topics:
        for _ in range(3):
            write(topic, batch([b"a", b"b", b"c"], seconds_apart(3)))
    with topics[0].leader() as kafka, topics[1].leader() as ours:
        for timestamp in [-1, -2, -3, 0, int(time.time() * 1000) + 3_600_000]:
            answers = [list_offsets(topic, 8, timestamp, wire)[0] for topic, wire in zip(topics, (kafka, ours))]
            # The times are each broker's own.
            expected, answer = ([a[:3] + a[4:] + (a[3] > 0,) for a in answers])
            assert answer == expected, timestamp


# Epochs

def test_ends_of_epochs_are_kafka_s(both):
    topics = both("epochs")
    for topic in topics:
        write(topic, batch([b"a", b"b"]))
    kinds = OffsetForLeaderEpochRequest.OffsetForLeaderTopic

    def ask(topic, wire, version, step, current, partition=0):
        known = topic.epoch() + current if current is not None else -1
        asked = kinds.OffsetForLeaderPartition(partition=partition, current_leader_epoch=known,
                                               leader_epoch=topic.epoch() + step)
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[kinds(topic=topic.name, partitions=[asked])])
        p = wire.call(request, version).topics[0].partitions[0]
        epoch = p.leader_epoch if p.leader_epoch < 0 else p.leader_epoch - topic.epoch()
        return p.partition, p.error_code, epoch, p.end_offset

    with topics[0].leader() as kafka, topics[1].leader() as ours:
        for version in (2, 3, 4):
            for step, current, partition in [(0, None, 0), (0, 0, 0), (1, 0, 0), (100, None, 0), (0, 1, 0), (0, 0, 9)]:
                expected = ask(topics[0], kafka, version, step, current, partition)
                assert ask(topics[1], ours, version, step, current, partition) == expected, (version, step, current)


# Fetch: one answer

@pytest.mark.parametrize("isolation_level", [0, 1])
def test_every_field_of_a_fetch_is_kafka_s(both, isolation_level):
    topics = both("fields")
    for topic in topics:
        write(topic, batch([b"a", b"b"]))
        write(topic, batch([b"c"]))

    def ask(topic, wire, version, offset, partition=0, step=None):
        epoch = -1 if step is None else topic.epoch() + step
        request = fetch_request([(topic, partition, offset)], version, isolation_level=isolation_level, epoch=epoch)
        response = wire.call(request, version)
        p = response.responses[0].partitions[0]
        named = response.responses[0].topic_id == topic.id if version >= 13 else response.responses[0].topic == topic.name
        return (named, response.throttle_time_ms, response.error_code, p.partition_index, p.error_code,
                p.high_watermark, p.last_stable_offset, p.log_start_offset, p.aborted_transactions,
                p.preferred_read_replica, len(p.records or b""))

    with topics[0].leader() as kafka, topics[1].leader() as ours:
        for version in range(FIRST_FETCH, LAST_FETCH + 1):
            for offset, partition, step in [(0, 0, None), (1, 0, 0), (2, 0, None), (3, 0, None), (4, 0, None),
                                            (-1, 0, None), (0, 9, None), (0, 0, 1)]:
                expected = ask(topics[0], kafka, version, offset, partition, step)
                answer = ask(topics[1], ours, version, offset, partition, step)
                assert answer == expected, f"offset {offset} of partition {partition}, version {version}"


def test_limits_give_at_least_one_batch_and_no_more_than_is_asked(both):
    topics = both("limits", partitions=2)
    for topic in topics:
        for partition in (0, 1):
            for _ in range(4):
                write(topic, batch([b"v" * 1000]), partition)
    # Kafka cuts the last batch where the limit is; here only whole ones are given.
    size = len(batch([b"v" * 1000]))
    with topics[1].leader() as ours:
        def sizes(**limits):
            asked = [(topics[1], 0, 0), (topics[1], 1, 0)]
            return sorted(n for *_, n in told(ours.call(fetch_request(asked, 12, **limits), 12)))
        assert sizes(max_bytes=1) == [0, size]
        assert sizes(partition_max_bytes=1) == [0, size]
        assert sizes(partition_max_bytes=2 * size) == [2 * size, 2 * size]
        assert sizes(max_bytes=5 * size) == [size, 4 * size]
        assert sizes(max_bytes=6 * size, partition_max_bytes=3 * size + 1) == [3 * size, 3 * size]
        assert sizes() == [4 * size, 4 * size]


# Fetch: waiting

def in_background(call):
    """Runs the call beside the test; returns a function that gives its result."""
    result = []
    thread = threading.Thread(target=lambda: result.append((call(), time.monotonic())))
    thread.start()

    def finish():
        thread.join(60)
        assert result, "the call has not ended"
        return result[0]
    finish.is_running = thread.is_alive
    return finish


def test_min_bytes_count_over_all_partitions(both):
    _, topic = both("min-bytes", partitions=2)
    size = len(batch([b"v" * 1000]))
    with topic.leader() as wire:
        request = fetch_request([(topic, 0, 0), (topic, 1, 0)], 12, max_wait_ms=30_000, min_bytes=2 * size)
        answer = in_background(lambda: wire.call(request, 12))
        write(topic, batch([b"v" * 1000]), 0)
        assert answer.is_running(), "half of it is not enough"
        write(topic, batch([b"v" * 1000]), 1)
        response, _ = answer()
    assert [n for *_, n in told(response)] == [size, size]


def test_max_wait_ends_a_wait_with_what_there_is(both):
    _, topic = both("max-wait", partitions=2)
    write(topic, batch([b"a"]), 1)
    with topic.leader() as wire:
        began = time.monotonic()
        response = wire.call(fetch_request([(topic, 0, 0), (topic, 1, 0)], 12, max_wait_ms=700, min_bytes=10_000), 12)
        assert time.monotonic() - began >= 0.69
        assert [n > 0 for *_, n in told(response)] == [False, True]
        # An error of one partition answers at once for all.
        wire.call(fetch_request([(topic, 0, 0), (topic, 9, 0)], 12, max_wait_ms=600_000), 12)
        wire.call(fetch_request([], 12, max_wait_ms=600_000), 12)


# Requests for partitions of several kinds

def test_a_fetch_with_partitions_of_others_serves_ours(both, clients):
    classic, topic = both("mixed", partitions=2)
    write(topic, batch([b"a"]), 0)
    size = len(batch([b"a"]))
    # A client has an id from our Metadata, and so it is known here.
    assert Topic(clients.bootstrap, classic.name).id == classic.id
    with topic.leader() as wire:
        asked = [(topic, 0, 0), (classic, 0, 0), ("nobody-has-this", 0, 0), (topic, 5, 0), (topic, 1, 0)]
        response = wire.call(fetch_request(asked, 12), 12)
        named = [(t.topic, p.partition_index, p.error_code, len(p.records or b""))
                 for t in response.responses for p in t.partitions]
        assert named == [(topic.name, 0, 0, size), (classic.name, 0, NOT_LEADER, 0),
                         ("nobody-has-this", 0, UNKNOWN_TOPIC, 0), (topic.name, 5, UNKNOWN_TOPIC, 0),
                         (topic.name, 1, 0, 0)]
        response = wire.call(fetch_request([(topic, 0, 0), (uuid.uuid4(), 0, 0), (classic, 0, 0)], 13), 13)
        assert [p[1:] for p in told(response)] == [(0, 1, size), (UNKNOWN_ID, -1, 0), (NOT_LEADER, -1, 0)]


def test_other_requests_with_partitions_of_others_answer_for_each(both):
    classic, topic = both("mixed-others")
    with topic.leader() as wire:
        asked = [(topic.name, 0, batch([b"a"])), (classic.name, 0, batch([b"a"])), ("nobody-has-this", 0, batch([b"a"])),
                 (topic.name, 7, batch([b"a"]))]
        response = wire.call(produce_request(asked), 9)
        codes = [p.error_code for t in response.responses for p in t.partition_responses]
        assert codes == [0, NOT_LEADER, UNKNOWN_TOPIC, UNKNOWN_TOPIC]
        for name, code in [(topic.name, 0), (classic.name, NOT_LEADER), ("nobody-has-this", UNKNOWN_TOPIC)]:
            kinds = ListOffsetsRequest.ListOffsetsTopic
            partition = kinds.ListOffsetsPartition(partition_index=0, timestamp=-1)
            request = ListOffsetsRequest(replica_id=-1, topics=[kinds(name=name, partitions=[partition])])
            assert wire.call(request, 8).topics[0].partitions[0].error_code == code


# Fetch sessions

def session_script(topic):
    """What one client does with a session, and what it is told at each step."""
    log = []
    with topic.leader() as wire:
        def step(what, asked, session, version=12, **options):
            response = wire.call(fetch_request(asked, version, session=session, **options), version)
            log.append((what, response.error_code, response.session_id != 0, told(response)))
            return response.session_id

        all_three = [(topic, 0, 0), (topic, 1, 0), (topic, 2, 0)]
        id = step("opened", all_three, (0, 0))
        step("no news", [], (id, 1))
        write(topic, batch([b"v" * 100]), 1)
        step("records", [], (id, 2))
        step("the same, since nothing moved on", [], (id, 3))
        step("the client moves on", [(topic, 1, 1)], (id, 4))
        step("a wrong epoch", [], (id, 4))
        step("an epoch too far", [], (id, 7))
        step("by id, where it was opened by name", [], (id, 5), version=13)
        step("an unknown session", [], (id ^ 1, 5))
        step("an offset that is not there", [(topic, 0, 99)], (id, 5))
        step("again", [], (id, 6))
        step("and well", [(topic, 0, 0)], (id, 7))
        step("no news", [], (id, 8))
        write(topic, batch([b"v" * 100]), 0)
        write(topic, batch([b"v" * 100]), 2)
        step("forgotten", [], (id, 9), forgotten=[(topic, 2)])
        step("taken up again", [(topic, 2, 0)], (id, 10))
        step("one batch, of whom it is the turn", [], (id, 11), max_bytes=1)
        step("the other", [], (id, 12), max_bytes=1)
        step("a partition that is not there", [(topic, 9, 0)], (id, 13))
        step("everything forgotten", [], (id, 14), forgotten=[(topic, p) for p in (0, 1, 2, 9)])
        step("closed with it", [], (id, 15))
        id = step("by id", all_three, (0, 0), version=13)
        step("by name, where it was opened by id", [], (id, 1))
        step("no news by id", [(topic, 0, 1), (topic, 1, 1), (topic, 2, 1)], (id, 1), version=13)
        other = step("a full one closes it", all_three, (id, 0), version=13)
        step("gone", [], (id, 2), version=13)
        step("final", all_three, (other, -1), version=13)
        step("gone", [], (other, 1), version=13)
    return log


def test_fetch_sessions_go_as_kafka_s(both):
    classic, diskless = both("sessions", partitions=3)
    for theirs, ours in zip(session_script(classic), session_script(diskless), strict=True):
        assert ours == theirs


def test_a_session_waits_for_records_and_another_connection_goes_on_with_it(both):
    _, topic = both("session-waits")
    with topic.leader() as wire, topic.leader() as other:
        id = wire.call(fetch_request([(topic, 0, 0)], 12, session=(0, 0)), 12).session_id
        assert id != 0
        answer = in_background(lambda: wire.call(fetch_request([], 12, session=(id, 1), max_wait_ms=60_000), 12))
        write(topic, batch([b"a"]))
        response, _ = answer()
        assert [n > 0 for *_, n in told(response)] == [True]
        response = other.call(fetch_request([(topic, 0, 1)], 12, session=(id, 2)), 12)
        assert (response.error_code, response.session_id, told(response)) == (0, id, [])


def test_java_consumers_read_through_sessions(clients):
    topic = clients.topic("diskless", "java-session", partitions=20)
    for partition in range(20):
        clients.produce(topic, [b"x"] * 50, partition=partition)
    output = clients.tool("org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", topic, "--from-beginning",
                          "--max-messages", "1000", "--timeout-ms", "60000")
    assert output.count("x") >= 1000


# Memory

def test_an_answer_that_nobody_reads_holds_its_memory_until_its_connection_ends(kafka1):
    size = 7 << 20
    with running_proxies(kafka1, settings={"fetch.memory.bytes": 8 << 20}) as [proxy]:
        own = Clients(proxy)
        topic = Topic(proxy.bootstrap, own.topic("diskless", "memory", config={"max.message.bytes": str(size + 1000)}))
        write(topic, batch([b"v" * size]))

        def ask(wire):
            # More than any limit, but at least one batch is given.
            return told(wire.call(fetch_request([(topic, 0, 0)], 12), 12))

        with topic.leader() as lazy, topic.leader() as other:
            lazy.send(fetch_request([(topic, 0, 0)], 12), 12, "lazy")
            # Nothing, not even an error: it comes again.
            wait_for(lambda: ask(other) == [(0, 0, 1, 0)], 30, "the memory to be taken")
            lazy.socket.close()
            assert wait_for(lambda: ask(other)[0][3] > size, 30, "the memory to be free again")
            assert ask(other)[0][3] > size, "and again after each answer"


# What passes through

def test_a_classic_topic_is_read_from_the_replica_of_the_zone(proxy3, kafka3):
    name = Clients(proxy3).topic("classic", "replica", partitions=6)
    topic, direct = Topic(proxy3.bootstrap, name), Topic(kafka3.bootstrap, name)
    near = 1  # The broker of zone-a, which is the proxy's zone.
    away = [p for p, led in topic.partitions.items() if led.leader_id != near]
    assert away, "six partitions have more than one leader"
    write(direct, batch([b"a"]), away[0])

    def preferred(library, **rack):
        with topic.leader(away[0]) as wire:
            wire.call(ApiVersionsRequest(client_software_name=library, client_software_version="1"), 3)
            response = wire.call(fetch_request([(topic, away[0], 0)], 12, **rack), 12)
        return response.responses[0].partitions[0].preferred_read_replica

    wait_for(lambda: preferred("apache-kafka-java") == near, 30, "the leader to know that its follower keeps up")
    assert preferred("apache-kafka-java", rack_id="zone-of-the-client") == -1, "a rack that the client names stays"
    assert preferred("a-library-that-may-not-look-there") == -1, "it would get no record"


def test_topics_of_both_kinds_are_described_page_by_page(both):
    classic, diskless = both("pages", partitions=5)
    names = sorted([classic.name, diskless.name])
    kinds = DescribeTopicPartitionsRequest
    with diskless.leader() as wire:
        for limit in (1, 2, 3, 7, 100):
            seen, cursor, pages = [], None, 0
            while True:
                response = wire.call(kinds(topics=[kinds.TopicRequest(name=n) for n in names],
                                           response_partition_limit=limit, cursor=cursor), 0)
                page = [(t.name, p.partition_index, p.leader_id >= 100_000) for t in response.topics
                        for p in t.partitions]
                assert len(page) <= limit and all(t.error_code == 0 for t in response.topics)
                seen += page
                pages += 1
                next_cursor = response.next_cursor
                if next_cursor is None or next_cursor.topic_name is None:
                    break
                cursor = kinds.Cursor(topic_name=next_cursor.topic_name, partition_index=next_cursor.partition_index)
            assert seen == [(n, p, n == diskless.name) for n in names for p in range(5)], limit
            assert pages == -(-10 // limit)


def test_throttle_times_of_kafka_are_passed_on(clients):
    name = clients.topic("classic", "throttled")
    clients.produce(name, [b"v" * 1000] * 500)
    client = "throttled-client"
    quota = ["--alter", "--entity-type", "clients", "--entity-name", client]
    clients.tool("kafka.admin.ConfigCommand", *quota, "--add-config", "consumer_byte_rate=1000")
    topic = Topic(clients.bootstrap, name)
    with topic.leader() as wire:
        def throttled():
            # Of a rack without a replica, so that the leader is asked for the records themselves.
            request = fetch_request([(topic, 0, 0)], 12, rack_id="elsewhere")
            return wire.call(request, 12, client_id=client).throttle_time_ms > 0
        wait_for(throttled, 60, "a throttle time")
    clients.tool("kafka.admin.ConfigCommand", *quota, "--delete-config", "consumer_byte_rate")
