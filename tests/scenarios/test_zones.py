"""Two proxies in two zones before one Kafka and one store: what one writes, the other reads."""

import os
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from harness import kafka_tool, wait_for
from workload import (QUIET, Load, check_error, create_topic, described, metadata_client, new_topic, read_and_verify,
                      running_proxies, shadow_ends)

# Lengths for a quick look or a long run.
RECORDS = int(os.environ.get("SIDESTREAM_RECORDS", 1_000_000))
SECONDS = int(os.environ.get("SIDESTREAM_SECONDS", 60))
TOPICS = int(os.environ.get("SIDESTREAM_TOPICS", 20))
PARTITIONS = 6


@pytest.fixture(scope="module")
def zones(kafka3):
    with running_proxies(kafka3, zones=("zone-a", "zone-b")) as proxies:
        yield proxies


def test_everything_written_in_one_zone_is_read_in_the_other(zones):
    a, b = zones
    topic = new_topic(a.bootstrap, PARTITIONS)
    load = Load(a.bootstrap, topic, PARTITIONS, rate=None, limit=RECORDS)
    load.finish(300)
    reading = read_and_verify(b.bootstrap, topic, [load], seconds=300)
    assert reading.records == RECORDS
    assert read_and_verify(a.bootstrap, topic, [load], seconds=300) == reading


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_of_every_codec_arrive_as_they_were_sent(zones, codec):
    a, b = zones
    topic = new_topic(a.bootstrap, 2)
    count = min(RECORDS, 20_000)
    load = Load(a.bootstrap, topic, 2, rate=None, limit=count, settings={"compression.type": codec}).finish()
    assert read_and_verify(b.bootstrap, topic, [load]).records == count
    stored = a.metrics()[f'sidestream_topic_produced_bytes_total{{topic="{topic}"}}']
    assert (stored > count * 100) == (codec == "none"), f"{codec}: {stored} bytes for {count} records of 100 bytes"


def own_ports(proxy):
    """The bootstrap port and the mapped ones; see the harness for the block that a proxy takes."""
    return range(proxy.port, proxy.port + 110)


def endpoints_told(proxy):
    """Every address that a client learns from this proxy."""
    told = [(b.host, b.port) for b in described(proxy.bootstrap).brokers.values()]
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap, **QUIET})
    cluster = admin.describe_cluster(request_timeout=30).result(60)
    told += [(node.host, node.port) for node in cluster.nodes]
    return told


def test_each_proxy_tells_its_clients_no_address_but_its_own(zones):
    for proxy in zones:
        told = endpoints_told(proxy)
        # Three brokers of Kafka and two proxies, in each of two answers.
        assert len(told) == 10
        assert [t for t in told if t[0] != "127.0.0.1" or t[1] not in own_ports(proxy)] == []


def test_clients_stay_in_their_zone(zones):
    """Java and librdkafka clients that ask for metadata all the time never come to the other zone's proxy."""
    a, b = zones
    diskless, classic, java = (new_topic(a.bootstrap, PARTITIONS, diskless=d) for d in (True, False, True))
    before = traffic(b)
    restless = {"topic.metadata.refresh.interval.ms": 1000, "metadata.max.age.ms": 1000}
    count = SECONDS * 500
    # Its timeout is for the start of the producer on a busy machine.
    java_consumer = ["org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", a.bootstrap, "--topic", java,
                     "--num-records", str(count), "--timeout", "120000", "--command-property",
                     "metadata.max.age.ms=1000"]
    java_producer = ["org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", a.bootstrap, "--topic", java,
                     "--num-records", str(count), "--throughput", "500", "--record-size", "100", "--command-property",
                     "metadata.max.age.ms=1000"]
    with ThreadPoolExecutor() as threads:
        produced = threads.submit(kafka_tool, *java_producer, timeout=SECONDS + 240)
        consumed = threads.submit(kafka_tool, *java_consumer, timeout=SECONDS + 240)
        loads = [Load(a.bootstrap, topic, PARTITIONS, rate=500, limit=count, settings=restless)
                 for topic in (diskless, classic)]
        followed = [threads.submit(follow_in_a_group, a.bootstrap, load.topic, count, SECONDS + 240, restless)
                    for load in loads]
        for load in loads:
            load.finish(SECONDS + 240)
            read_and_verify(a.bootstrap, load.topic, [load], settings=restless)
        for one in followed:
            one.result()
        assert f"{count} records sent" in produced.result().splitlines()[-1]
        assert f" {count}, " in consumed.result().splitlines()[-1]
    assert traffic(b) == before


def traffic(proxy):
    """Connections accepted and bytes of clients moved by a proxy so far."""
    names = ("sidestream_client_connections_total", "sidestream_topic_produced_bytes_total",
             "sidestream_topic_fetched_bytes_total", "sidestream_produce_bytes_total")
    return {name: value for name, value in proxy.metrics().items() if name.startswith(names)}


def follow_in_a_group(bootstrap, topic, count, seconds, settings):
    """Consumes so many records as a member of a group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"followers-{topic}", **QUIET,
                         "auto.offset.reset": "earliest", **settings})
    deadline = time.monotonic() + seconds
    try:
        consumer.subscribe([topic])
        seen = set()
        while len(seen) < count:
            assert time.monotonic() < deadline, f"a group got {len(seen)} of {count} records of {topic}"
            for message in consumer.consume(1000, timeout=0.5):
                check_error(message)
                if message.error() is None:
                    seen.add((message.partition(), message.offset()))
    finally:
        consumer.close()


class Watcher:
    """Asks one proxy for one topic's metadata over and over, and remembers each leader it was told."""

    def __init__(self, proxy, topic):
        self.leaders, self.rounds, self.problem = set(), 0, None
        self.is_complete = False
        self._stopping = threading.Event()
        self._client = metadata_client(proxy.bootstrap)
        self._topic = topic
        # The connection is made before the watch begins.
        self._client.list_topics(topic, timeout=60)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            while not self._stopping.is_set():
                partitions = self._client.list_topics(self._topic, timeout=60).topics[self._topic].partitions
                leaders = {p.leader for p in partitions.values()}
                self.leaders |= leaders
                self.rounds += 1
                self.is_complete = bool(leaders) and -1 not in leaders
        except Exception as problem:  # told to the test by `stop`
            self.problem = problem

    def stop(self):
        self._stopping.set()
        self._thread.join(timeout=90)
        self._client.close()
        if self.problem:
            raise self.problem


@pytest.mark.parametrize("by_name", [False, True], ids=["by-setting", "by-name"])
def test_a_new_diskless_topic_is_never_seen_as_classic(kafka3, zones, by_name):
    """Clients of the other zone ask for the topic, and produce to it, while it is being created."""
    a, b = zones
    for _ in range(TOPICS // 2):
        topic = f"{'diskless' if by_name else 'other'}-{uuid.uuid4().hex[:8]}"
        watchers = [Watcher(proxy, topic) for proxy in (b, b, b, a)]
        load = Load(b.bootstrap, topic, 2, rate=None, limit=200, settings={"allow.auto.create.topics": False})
        try:
            create_topic(a.bootstrap, topic, 2, {} if by_name else {"diskless.enable": "true"})
            wait_for(lambda: all(w.is_complete or w.problem for w in watchers), 60, "all watchers to see the topic")
            load.finish()
        finally:
            for watcher in watchers:
                watcher.stop()
        for watcher in watchers:
            assert watcher.rounds > 1
            real = {leader for leader in watcher.leaders if 0 <= leader < 100_000}
            assert not real, f"{topic} was shown with leaders {real}"
        assert shadow_ends(kafka3, topic, 2) == [0, 0]
        read_and_verify(a.bootstrap, topic, [load])
