"""Topics: how one becomes diskless, stays so, and goes; its settings; what is refused, and how."""

import time

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AlterConfigOpType, NewPartitions

from clients import name_for, numbered, values
from harness import wait_for


def refusal(action):
    """The error with which the action is refused."""
    with pytest.raises(KafkaException) as raised:
        action()
    return raised.value.args[0]


@pytest.fixture
def diskless(clients):
    return clients.topic("diskless", "topic")


def test_the_setting_makes_a_topic_diskless_whatever_its_name(clients):
    topic = clients.create(name_for("any", "topic"), config={"diskless.enable": "true", "retention.ms": "7200000"})
    config = clients.config(topic)
    assert (config["diskless.enable"], config["retention.ms"]) == ("true", "7200000")
    clients.produce(topic, numbered(3))
    assert values(clients.read(topic, 3)) == numbered(3)


def test_the_setting_keeps_a_topic_classic_whatever_its_name(clients):
    topic = clients.create(name_for("diskless", "not"), config={"diskless.enable": "false"})
    assert not clients.is_diskless(topic)


def test_records_of_a_diskless_topic_are_in_the_object_store_and_not_in_kafka(clients, kafka3, diskless):
    mark = b"a value that is easy to find " * 10
    clients.produce(diskless, [mark])
    assert any(mark in file.read_bytes() for file in clients.proxy.store.rglob("*") if file.is_file())
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka3.bootstrap, "group.id": "past-the-proxy"})
    try:
        ends = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(diskless, 0), timeout=30)
    finally:
        consumer.close()
    assert ends == (0, 0)


def test_a_change_of_other_settings_does_not_disable(clients, diskless):
    clients.alter(diskless, "retention.ms", "3600000")
    config = clients.config(diskless)
    assert (config["diskless.enable"], config["retention.ms"]) == ("true", "3600000")
    clients.produce(diskless, numbered(1))
    assert values(clients.read(diskless, 1)) == numbered(1)


def test_the_kind_of_an_existing_topic_cannot_be_changed_by_its_settings(clients, diskless):
    classic = clients.topic("classic", "topic")
    for action in [
        lambda: clients.alter(classic, "diskless.enable", "true"),
        lambda: clients.alter(diskless, "diskless.enable", "false"),
        lambda: clients.alter(diskless, "diskless.enable", "", AlterConfigOpType.DELETE),
    ]:
        error = refusal(action)
        assert error.code() == KafkaError.INVALID_CONFIG and "diskless" in error.str()
    assert clients.is_diskless(diskless) and not clients.is_diskless(classic)


def test_compaction_is_refused_on_diskless_topics(clients, diskless):
    compact = {"cleanup.policy": "compact"}
    name = name_for("diskless", "compact")
    for action in [
        lambda: clients.create(name, config=compact),
        lambda: clients.create(name, config={"cleanup.policy": "compact,delete"}),
        lambda: clients.alter(diskless, "cleanup.policy", "compact"),
    ]:
        error = refusal(action)
        assert error.code() == KafkaError.INVALID_CONFIG and "cleanup.policy=compact" in error.str()
    assert name not in clients.admin.list_topics(timeout=30).topics
    clients.create(name_for("classic", "compact"), config=compact)


def test_a_topic_that_exists_is_not_created_again(clients, kind):
    topic = clients.topic(kind, "twice")
    clients.produce(topic, numbered(2))
    error = refusal(lambda: clients.create(topic))
    assert error.code() == KafkaError.TOPIC_ALREADY_EXISTS
    assert clients.is_diskless(topic) == (kind == "diskless")
    assert values(clients.read(topic, 2)) == numbered(2)


def test_a_topic_that_was_deleted_and_created_again_starts_empty(clients, kind):
    topic = clients.topic(kind, "again")
    clients.produce(topic, numbered(5))
    clients.delete(topic)

    def created():
        # Kafka deletes in the background: the name may be taken for a moment yet.
        try:
            return clients.create(topic)
        except KafkaException as error:
            assert error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
            return None

    wait_for(created, 30, "the name to be free again")
    assert clients.is_diskless(topic) == (kind == "diskless")
    delivered = clients.produce(topic, [b"new"])
    assert delivered[0].offset() == 0
    assert values(clients.read(topic, 1)) == [b"new"]


def test_partitions_that_are_added_take_records(clients, kind):
    topic = clients.topic(kind, "grows")
    new = confluent_kafka.admin.NewPartitions(topic, 3)
    clients.admin.create_partitions([new])[topic].result()
    clients.produce(topic, numbered(2), partition=2)
    assert values(clients.read(topic, 2, partition=2)) == numbered(2)


def test_the_list_of_all_topics_has_both_kinds_and_not_the_proxies_own_log(clients, kind):
    topic = clients.topic(kind, "listed")
    listed = clients.admin.list_topics(timeout=30).topics
    assert topic in listed and metadata_topic(clients) not in listed


def metadata_topic(clients):
    return clients.proxy.settings.get("metadata.topic", "__diskless_metadata")


def test_times_of_a_log_append_time_topic_are_the_log_s(clients, kind):
    topic = clients.topic(kind, "appended", config={"message.timestamp.type": "LogAppendTime"})
    before = time.time() * 1000
    delivered = clients.produce(topic, numbered(3), timestamps=[1, 2, 3])
    after = time.time() * 1000
    read = clients.read(topic, 3)
    for message in delivered + read:
        kind_of_time, at = message.timestamp()
        assert kind_of_time == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
        assert before - 1000 <= at <= after + 1000
    assert [m.timestamp() for m in read] == [m.timestamp() for m in delivered]


def test_the_metadata_log_is_closed_to_clients(clients):
    topic = metadata_topic(clients)
    error = refusal(lambda: clients.delete(topic))
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException):
        clients.produce(topic, [b"forged"], message_timeout_ms=5000)
    # A second partition would end every proxy: the log is one partition.
    grown = NewPartitions(topic, 2)
    error = refusal(lambda: clients.admin.create_partitions([grown], request_timeout=30)[topic].result())
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_creation_that_kafka_refuses_leaves_no_trace_in_the_log(clients):
    """The name was announced to all proxies before Kafka was asked: while it stood, a classic topic of that name was
    withheld from its producers. So anyone could disturb any classic topic by trying to create it."""
    classic = clients.topic("classic", "taken")
    appended = "sidestream_metadata_log_appended_total"
    before = clients.proxy.metrics()[appended]
    for _ in range(30):
        error = refusal(lambda: clients.create(classic, config={"diskless.enable": "true"}))
        assert error.code() == KafkaError.TOPIC_ALREADY_EXISTS
    # Heartbeats go on meanwhile, one in three seconds.
    assert clients.proxy.metrics()[appended] - before < 30
    clients.produce(classic, numbered(3))
    assert values(clients.read(classic, 3)) == numbered(3)
