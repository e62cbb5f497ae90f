"""What a producer may ask of a diskless topic, and how it is told what it may not."""

import confluent_kafka
import kafka
import kafka.errors
import pytest
from confluent_kafka import KafkaError, KafkaException

from clients import numbered, values
from harness import wait_for

CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"


@pytest.fixture
def diskless(clients):
    return clients.topic("diskless", "producer")


def test_confluent_without_idempotence_is_refused_with_advice(clients, diskless):
    with pytest.raises(KafkaException) as refused:
        clients.produce(diskless, [b"x"], enable_idempotence=False)
    assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION
    wait_for(lambda: "enable.idempotence=true" in clients.proxy.log.read_text(), 10, "the refusal in the log")
    assert clients.proxy.metrics()["sidestream_produce_refused_batches_total"] >= 1


def test_kafka_python_without_idempotence_is_refused_with_advice(clients, diskless):
    producer = kafka.KafkaProducer(bootstrap_servers=clients.bootstrap, enable_idempotence=False)
    try:
        with pytest.raises(kafka.errors.PolicyViolationError):
            producer.send(diskless, b"x").get(timeout=60)
    finally:
        producer.close()


def test_the_java_producer_without_idempotence_shows_the_advice(clients, diskless):
    out = clients.tool(CONSOLE_PRODUCER, "--topic", diskless, "--command-property", "enable.idempotence=false",
                       input="x\n")
    assert "PolicyViolationException" in out and "enable.idempotence=true" in out, out


def test_kcat_without_idempotence_is_refused(clients, diskless):
    done = clients.kcat("-P", "-t", diskless, "-p", "0", input="x\n")
    assert "Policy violation" in done.stdout + done.stderr


@pytest.mark.parametrize("acks", ["1", "all"])
def test_a_classic_topic_takes_producers_without_idempotence(clients, acks):
    topic = clients.topic("classic", "producer")
    clients.produce(topic, numbered(10), enable_idempotence=False, acks=acks)
    assert values(clients.read(topic, 10)) == numbered(10)


def test_acks_0_reaches_a_classic_topic(clients):
    topic = clients.topic("classic", "producer")
    clients.produce(topic, numbered(10), enable_idempotence=False, acks="0")
    assert values(clients.read(topic, 10)) == numbered(10)


def test_acks_0_to_a_diskless_topic_ends_the_connection_and_leaves_a_line_in_the_log(clients, diskless):
    clients.produce(diskless, [b"unheard"], enable_idempotence=False, acks="0")
    told = "closed the connection of a producer with acks=0"
    wait_for(lambda: told in clients.proxy.log.read_text(), 20, "the line in the log")
    consumer = clients.consumer("nothing-was-written")
    try:
        ends = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(diskless, 0), timeout=30)
    finally:
        consumer.close()
    assert ends == (0, 0)


def test_a_transaction_on_a_diskless_topic_is_refused(clients, diskless):
    producer = clients.producer(transactional_id=f"tx-{diskless}")
    producer.init_transactions(60)
    producer.begin_transaction()
    errors = []
    producer.produce(diskless, b"x", partition=0, on_delivery=lambda error, _: errors.append(error))
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(60)
    assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION
    assert errors and errors[0] is not None
    assert "transactions are not supported there" in clients.proxy.log.read_text()


def test_a_transaction_that_reaches_for_a_diskless_topic_can_be_aborted(clients, diskless):
    classic = clients.topic("classic", "transaction")
    producer = clients.producer(transactional_id=f"tx-{diskless}")
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(classic, b"aborted", partition=0)
    producer.flush(60)
    producer.produce(diskless, b"refused", partition=0)
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(60)
    assert refused.value.args[0].txn_requires_abort()
    producer.abort_transaction(60)
    producer.begin_transaction()
    producer.produce(classic, b"committed", partition=0)
    producer.commit_transaction(60)
    assert values(clients.read(classic, 1, isolation_level="read_committed")) == [b"committed"]


def test_a_transaction_on_a_classic_topic_commits(clients):
    topic = clients.topic("classic", "transaction")
    producer = clients.producer(transactional_id=f"tx-{topic}")
    producer.init_transactions(60)
    for round_number, finish in enumerate([producer.commit_transaction, producer.abort_transaction,
                                           producer.commit_transaction]):
        producer.begin_transaction()
        producer.produce(topic, f"round-{round_number}".encode(), partition=0)
        producer.flush(60)
        finish(60)
    assert values(clients.read(topic, 2, isolation_level="read_committed")) == [b"round-0", b"round-2"]


def test_many_producers_and_large_records_keep_each_order(clients, kind):
    topic = clients.topic(kind, "large", partitions=3)
    body = bytes(range(256)) * 400
    reports = []
    producers = [clients.producer() for _ in range(3)]
    for i in range(30):
        for partition, producer in enumerate(producers):
            producer.produce(topic, f"{i:03}".encode() + body, partition=partition,
                             on_delivery=lambda error, _: reports.append(error))
    for producer in producers:
        assert producer.flush(120) == 0
    assert reports == [None] * 90
    for partition in range(3):
        read = values(clients.read(topic, 30, partition=partition))
        assert read == [f"{i:03}".encode() + body for i in range(30)]


def test_a_record_that_is_too_large_is_refused(clients, kind):
    topic = clients.topic(kind, "limit", config={"max.message.bytes": "10000"})
    with pytest.raises(KafkaException) as refused:
        clients.produce(topic, [b"x" * 20000], message_timeout_ms=20000)
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    clients.produce(topic, [b"x" * 5000])
    assert len(clients.read(topic, 1)[0].value()) == 5000
