"""Bytes stay bytes: what a proxy has no reason to touch is the same, frame by frame, before and behind it.

Recorders stand on both sides: clients reach the proxy through one, and the proxy reaches the broker through another.
"""

import collections
import contextlib
import os
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import pytest

from clients import Clients, name_for, numbered, take
from harness import Kafka
from recorder import Recorder
from test_java_tools import CONSOLE_CONSUMER, GROUPS, PRODUCER_PERFORMANCE
from workload import running_proxies

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PRODUCE, FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH = 0, 1, 2, 8, 9
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS = 11, 12, 13, 14, 15, 16
INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 28
DELETE_GROUPS, CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 42, 68, 69
# Metadata, FindCoordinator, ApiVersions, CreateTopics, DeleteTopics, DescribeConfigs, AlterConfigs, CreatePartitions,
# IncrementalAlterConfigs, DescribeCluster, DescribeTopicPartitions.
REWRITTEN = {3, 10, 18, 19, 20, 32, 33, 37, 44, 60, 75}
# The virtual broker answers these itself: Produce, Fetch, ListOffsets, ListGroups, DeleteRecords, OffsetForLeaderEpoch,
# DescribeLogDirs, DescribeProducers, ListTransactions.
ANSWERED_BY_VIRTUAL_BROKER = {0, 1, 2, 16, 21, 23, 35, 61, 66}
# What both families of clients must be seen to send, or nothing was shown.
SEEN = {PRODUCE, FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP,
        INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN, CONSUMER_GROUP_HEARTBEAT}


def elsewhere(port):
    """A broker that is dialled at 127.0.0.1 and listens on 127.0.0.3."""
    return f"listeners=PLAINTEXT://127.0.0.3:{port},CONTROLLER://127.0.0.1:{port + 100}\n"


@pytest.fixture(scope="module")
def behind():
    """A broker, and the recorder of everything that reaches it."""
    with contextlib.ExitStack() as stack:
        kafka = Kafka(1, extra=elsewhere)
        stack.callback(kafka.stop)
        recorder = Recorder(kafka.base_port, "127.0.0.3")
        stack.callback(recorder.stop)
        yield kafka, recorder


class Recording:
    """A proxy between recorders."""

    def __init__(self, proxy, before, behind):
        self.clients = Clients(proxy)
        self.bootstrap_port = proxy.port
        self._before, self._behind = before, behind
        self._earlier = len(behind.connections)

    def compare(self, as_forwarded=lambda exchange: exchange.request):
        """Compares both sides; returns how many exchanges were compared, by family of clients, API key, and whether
        there was a response to compare."""
        theirs = [c for recorder in self._before for c in recorder.connections]
        ours = self._behind.connections[self._earlier:]
        asked = [exchanges for c in theirs if (exchanges := self._untouched(c))]
        known = {e.client_id for exchanges in asked for e in exchanges}
        passed = [[e for e in exchanges if e.client_id in known]
                  for c in ours if (exchanges := self._untouched(c))]
        passed = [exchanges for exchanges in passed if exchanges]
        compared = collections.Counter()
        for exchanges in asked:
            other = take_other_side(exchanges, passed)
            for mine, forwarded in zip(exchanges, other):
                compare_frames(as_forwarded(mine), forwarded.request, mine, "request")
                is_answered = mine.response is not None
                if is_answered:
                    compare_frames(mine.response, forwarded.response, mine, "response")
                compared[mine.client_id.split("-")[0], mine.api_key, is_answered] += 1
        assert not passed, f"requests came to the broker that no client sent: {[e.name for e in passed[0]][:5]}"
        return compared

    def fetches(self):
        """Every Fetch, as the clients sent it."""
        return [e for recorder in self._before for c in recorder.connections for e in c.exchanges()
                if e.api_key == FETCH]

    def _untouched(self, connection):
        touched = REWRITTEN
        if connection.port == self.bootstrap_port:
            touched = touched | ANSWERED_BY_VIRTUAL_BROKER
        # The proxy's own calls on a client's connection have negative correlation ids.
        return [e for e in connection.exchanges() if e.correlation_id >= 0 and e.api_key not in touched]


def take_other_side(exchanges, passed):
    """The upstream connection of a client's connection: it has the same requests, but perhaps not those that the client
    left unanswered when it went away."""
    names = [e.name for e in exchanges]
    answered = [i for i, e in enumerate(exchanges, start=1) if e.response is not None]
    least = max(answered, default=0)
    fitting = [other for other in passed
               if least <= len(other) <= len(names) and [e.name for e in other] == names[:len(other)]]
    if not fitting:
        assert least == 0, f"no connection behind the proxy has the requests of one before it: {names}"
        return []
    best = max(fitting, key=len)
    passed[:] = [other for other in passed if other is not best]
    return best


def compare_frames(expected, found, exchange, which):
    if expected == found:
        return
    at = len(os.path.commonprefix([expected, found or b""]))
    raise AssertionError(f"{which} {exchange.name}: from byte {at} of {len(expected)} on, before the proxy "
                         f"{expected[at:at + 32].hex()}, behind it {None if found is None else found[at:at + 32].hex()}")


@contextlib.contextmanager
def recording(behind, settings=None):
    kafka, recorder = behind
    own = {"listener.bind.host": "127.0.0.2", **(settings or {})}
    with running_proxies(kafka, settings=own) as [proxy], contextlib.ExitStack() as stack:
        before = []
        # The bootstrap address, and the mapped port of broker 1.
        for port in [proxy.port, proxy.settings["listener.mapped.port.base"] + 1]:
            before.append(Recorder(port, "127.0.0.2"))
            stack.callback(before[-1].stop)
        yield Recording(proxy, before, recorder)


def named(client_id):
    return ["--command-property", f"client.id={client_id}"]


def run_java(clients, tmp_path):
    """Every codec, a transaction, groups of both protocols, and an admin client."""
    topic = clients.topic("classic", "java", partitions=3)

    def produce(number, size, *arguments):
        clients.tool(PRODUCER_PERFORMANCE, "--topic", topic, "--num-records", number, "--record-size", size,
                     "--throughput", "-1", *arguments)

    def produce_with(codec):
        # This tool takes all properties behind one option.
        produce("2000", "1000", *named(f"java-{codec}"), f"compression.type={codec}")

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(produce_with, CODECS))
    produce("5", "1000000", *named("java-large"))
    produce("2000", "100", *named("java-transaction"), "--transactional-id", name_for("java", "tx"),
            "--transaction-duration-ms", "100")
    group = name_for("java", "group")
    for protocol in ["classic", "consumer"]:
        settings = [f"group.protocol={protocol}", "isolation.level=read_committed", "auto.offset.reset=earliest"]
        if protocol == "classic":
            settings += ["heartbeat.interval.ms=200"]
        chosen = [word for setting in settings for word in ["--command-property", setting]]
        read = clients.tool(CONSOLE_CONSUMER, "--topic", topic, "--group", f"{group}-{protocol}", "--timeout-ms", "3000",
                            *named(f"java-{protocol}"), *chosen)
        assert "Processed a total of 12005 messages" in read, read[-500:]
    config = tmp_path / "admin.properties"
    config.write_text("client.id=java-admin\n")
    described = clients.tool(GROUPS, "--command-config", str(config), "--describe", "--all-groups")
    assert f"{group}-classic" in described and f"{group}-consumer" in described, described


def run_librdkafka(clients):
    """The same with librdkafka, and offsets inside a transaction."""
    topic = clients.topic("classic", "librdkafka", partitions=3)
    for codec in CODECS:
        clients.produce(topic, numbered(500, prefix="value " * 50), compression_type=codec,
                        client_id=f"librdkafka-{codec}")
    clients.produce(topic, [os.urandom(950_000) for _ in range(5)], partition=1, client_id="librdkafka-large")
    clients.produce(topic, numbered(20), acks="0", enable_idempotence=False, client_id="librdkafka-acks-0")
    for protocol in ["classic", "consumer"]:
        read_in_a_group(clients, topic, 2525, protocol)
    copy_in_transactions(clients, topic)
    group = f"librdkafka-group-{topic}-classic"
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": clients.bootstrap, "client.id": "librdkafka-admin"})
    assert admin.describe_consumer_groups([group])[group].result().group_id == group
    assert group in [g.group_id for g in admin.list_consumer_groups().result().valid]
    admin.delete_consumer_groups([group])[group].result()


def read_in_a_group(clients, topic, count, protocol):
    beats = {"heartbeat_interval_ms": 200, "session_timeout_ms": 10_000} if protocol == "classic" else {}
    consumer = clients.consumer(f"librdkafka-group-{topic}-{protocol}", group_protocol=protocol,
                                client_id=f"librdkafka-{protocol}", **beats)
    try:
        consumer.subscribe([topic])
        taken = take(consumer, count - 1)
        consumer.commit(taken[-1], asynchronous=False)
        # The rest of them, and meanwhile heartbeats and Fetch requests without records.
        taken += take(consumer, 1)
        consumer.poll(2)
    finally:
        consumer.close()
    assert len(taken) == count


def copy_in_transactions(clients, topic):
    """Some records are read, written to another topic and their offsets committed, all in one transaction; then again,
    aborted."""
    target = clients.topic("classic", "copy")
    producer = clients.producer(transactional_id=f"tx-{target}", client_id="librdkafka-transaction")
    consumer = clients.consumer(f"librdkafka-copy-{topic}", client_id="librdkafka-copy")
    try:
        producer.init_transactions(60)
        consumer.subscribe([topic])
        for finish in [producer.commit_transaction, producer.abort_transaction]:
            producer.begin_transaction()
            for message in take(consumer, 10):
                producer.produce(target, message.value())
            producer.send_offsets_to_transaction(consumer.position(consumer.assignment()),
                                                 consumer.consumer_group_metadata(), 60)
            finish(60)
    finally:
        consumer.close()
    read = clients.read(target, 10, isolation_level="read_committed", client_id="librdkafka-committed")
    assert len(read) == 10


def test_what_a_java_client_and_librdkafka_say_and_hear_is_the_same_on_both_sides(behind, tmp_path):
    with recording(behind, {"listener.fetch.rack": False}) as recorded:
        run_java(recorded.clients, tmp_path)
        run_librdkafka(recorded.clients)
        compared = recorded.compare()
    print(sorted(compared.items()))
    for family, more in [("java", {CONSUMER_GROUP_DESCRIBE, LIST_GROUPS}),
                         ("librdkafka", {ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT, DESCRIBE_GROUPS, LIST_GROUPS,
                                         DELETE_GROUPS})]:
        missing = {key for key in SEEN | more if not compared[family, key, True]}
        assert not missing, f"{family} was not seen to use API keys {missing}: {compared}"
    assert compared["librdkafka", PRODUCE, False], "a Produce with acks=0 has no response, but must be there"


def with_rack(exchange):
    """What a Fetch from the leader becomes: in the flexible versions that are used here, the empty rack and no tagged
    fields end the request. The length grows with the rack."""
    if exchange.api_key != FETCH or not exchange.request.endswith(b"\x01\x00"):
        return exchange.request
    rack = b"zone-a"
    body = exchange.request[4:-2] + bytes([len(rack) + 1]) + rack + b"\x00"
    return len(body).to_bytes(4, "big") + body


def test_with_the_zone_as_rack_a_fetch_differs_in_nothing_else(behind):
    with recording(behind) as recorded:
        clients = recorded.clients
        topic = clients.topic("classic", "rack")
        clients.produce(topic, numbered(100), client_id="librdkafka-producer")
        clients.tool(CONSOLE_CONSUMER, "--topic", topic, "--from-beginning", "--max-messages", "100",
                     *named("java-without"))
        for client_id, settings in [("librdkafka-without", {}), ("librdkafka-with", {"client_rack": "zone-c"})]:
            assert len(clients.read(topic, 100, client_id=client_id, **settings)) == 100
        with pytest.raises(AssertionError, match=r"request .*, 1, \d+, \d+\): from byte"):
            recorded.compare()
        compared = recorded.compare(with_rack)
        # A client's own rack stays; without it the rack is the one thing that was put in.
        fetches = recorded.fetches()
    assert compared["java", FETCH, True] and compared["librdkafka", FETCH, True]
    assert all(e.request != with_rack(e) for e in fetches if e.client_id.endswith("-without"))
    own = [e for e in fetches if e.client_id == "librdkafka-with"]
    assert own and all(e.request.endswith(b"\x07zone-c\x00") and e.request == with_rack(e) for e in own)
