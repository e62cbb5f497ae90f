"""kcat, confluent-kafka and kafka-python, through the proxy only, on topics of both kinds."""

import json

import confluent_kafka
import kafka
import kafka.admin
import pytest

from clients import name_for, numbered, seconds_apart, take, values
from harness import wait_for


def test_kcat_lists_produces_and_consumes(clients, kind):
    topic = clients.topic(kind, "kcat", partitions=2)
    lines = "".join(f"k{i}:v{i}\n" for i in range(50))
    wrote = clients.kcat("-P", "-t", topic, "-p", "1", "-K:", "-X", "enable.idempotence=true", input=lines)
    assert wrote.returncode == 0, wrote.stderr
    read = clients.kcat("-C", "-t", topic, "-p", "1", "-o", "beginning", "-e", "-q", "-K:")
    assert read.stdout == lines
    listed = json.loads(clients.kcat("-L", "-J", "-t", topic).stdout)
    assert [p["partition"] for p in listed["topics"][0]["partitions"]] == [0, 1]
    from_middle = clients.kcat("-C", "-t", topic, "-p", "1", "-o", "40", "-c", "1", "-q", "-f", "%o %s")
    assert from_middle.stdout == "40 v40"
    tail = clients.kcat("-C", "-t", topic, "-p", "1", "-o", "-2", "-e", "-q", "-f", "%s ")
    assert tail.stdout == "v48 v49 "


def test_kcat_reads_in_a_group_and_resumes(clients, kind):
    topic = clients.topic(kind, "kcat")
    group = name_for("group", "kcat")
    for round_number in range(2):
        clients.produce(topic, numbered(5, prefix=f"round-{round_number}"))
        read = clients.kcat("-G", group, "-c", "5", "-q", "-X", "auto.offset.reset=earliest", topic)
        assert read.stdout.splitlines() == [f"round-{round_number}-{i}" for i in range(5)], read.stderr


def test_kcat_finds_an_offset_by_time(clients, kind):
    topic = clients.topic(kind, "kcat")
    times = seconds_apart(5)
    clients.produce(topic, numbered(5), timestamps=times)
    found = clients.kcat("-Q", "-t", f"{topic}:0:{times[2] + 500}")
    assert found.stdout.strip() == f"{topic} [0] offset 3", found.stderr


def test_confluent_reports_offsets_and_reads_them_back(clients, kind):
    topic = clients.topic(kind, "confluent")
    delivered = clients.produce(topic, numbered(1000))
    assert [m.offset() for m in delivered] == list(range(1000))
    assert values(clients.read(topic, 1000)) == numbered(1000)
    assert values(clients.read(topic, 1, offset=998)) == [b"value-998"]


def test_confluent_keeps_keys_headers_and_timestamps(clients, kind):
    topic = clients.topic(kind, "confluent")
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None)]
    time = seconds_apart(1)[0] + 123
    producer = clients.producer()
    producer.produce(topic, b"value", key=b"key", headers=headers, timestamp=time, partition=0)
    producer.produce(topic, None, key=b"tombstone", partition=0)
    assert producer.flush(60) == 0
    first, second = clients.read(topic, 2)
    assert (first.key(), first.value(), first.headers()) == (b"key", b"value", headers)
    assert first.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, time)
    assert (second.key(), second.value()) == (b"tombstone", None)


def test_confluent_watermarks_and_times_lead_to_the_same_records(clients, kind):
    topic = clients.topic(kind, "confluent")
    times = seconds_apart(10)
    clients.produce(topic, numbered(10), timestamps=times)
    consumer = clients.consumer(name_for("group", "times"))
    partition = confluent_kafka.TopicPartition
    try:
        assert consumer.get_watermark_offsets(partition(topic, 0), timeout=30) == (0, 10)
        found = consumer.offsets_for_times([partition(topic, 0, times[4])], timeout=30)[0]
        assert found.offset == 4
        consumer.assign([partition(topic, 0, 0)])
        take(consumer, 10)
        consumer.seek(found)
        assert values(take(consumer, 1)) == [b"value-4"]
    finally:
        consumer.close()


def test_a_record_arrives_while_the_consumer_waits(clients, kind):
    topic = clients.topic(kind, "confluent")
    consumer = clients.consumer(name_for("group", "waits"), fetch_wait_max_ms=20_000)
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        assert consumer.poll(1) is None
        clients.produce(topic, [b"late"])
        # Far sooner than the wait that the consumer allows.
        assert values(take(consumer, 1, seconds=15)) == [b"late"]
    finally:
        consumer.close()


def test_kafka_python_produces_and_consumes(clients, kind):
    topic = name_for(kind, "python")
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=clients.bootstrap)
    try:
        admin.create_topics([kafka.admin.NewTopic(topic, 2, -1)])
        assert topic in admin.list_topics()
    finally:
        admin.close()
    assert clients.is_diskless(topic) == (kind == "diskless")
    producer = kafka.KafkaProducer(bootstrap_servers=clients.bootstrap, enable_idempotence=True)
    try:
        sent = [producer.send(topic, value, partition=0) for value in numbered(100)]
        assert [future.get(timeout=60).offset for future in sent] == list(range(100))
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=clients.bootstrap, auto_offset_reset="earliest")
    try:
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        assert [r.value for r in poll_python(consumer, 100)] == numbered(100)
        assert consumer.end_offsets([partition]) == {partition: 100}
        consumer.seek(partition, 60)
        assert poll_python(consumer, 40)[0].offset == 60
    finally:
        consumer.close()


def test_kafka_python_group_commits_and_resumes(clients, kind):
    topic = clients.topic(kind, "python")
    group = name_for("group", "python")
    clients.produce(topic, numbered(20))
    for expected in [numbered(20)[:10], numbered(20)[10:]]:
        consumer = kafka.KafkaConsumer(topic, bootstrap_servers=clients.bootstrap, group_id=group, max_poll_records=10,
                                       auto_offset_reset="earliest", enable_auto_commit=False)
        try:
            assert [r.value for r in poll_python(consumer, 10)] == expected
            consumer.commit()
        finally:
            consumer.close()


def poll_python(consumer, count):
    """At least that many records. Waits long each time: kafka-python 3.0 forgets a join that outlasts a poll."""
    records = []

    def enough():
        for batch in consumer.poll(timeout_ms=20_000).values():
            records.extend(batch)
        return len(records) >= count

    wait_for(enough, 60, f"{count} records")
    return records


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec_read_back_equal(clients, kind, codec):
    topic = clients.topic(kind, "codec")
    written = [b"compressible " * 50 + str(i).encode() for i in range(300)]
    clients.produce(topic, written, compression_type=codec, linger_ms=50)
    assert values(clients.read(topic, 300)) == written
    read = clients.kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q")
    assert read.stdout.splitlines() == [value.decode() for value in written]
