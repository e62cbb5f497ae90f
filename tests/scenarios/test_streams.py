"""Kafka Streams: a word count at least once, which keeps its state in topics of Kafka and reads and writes both kinds."""

import contextlib
import subprocess

import confluent_kafka

from clients import name_for
from harness import CACHE, ROOT, wait_for
from matrix_driver import JVM

LINES = ["to be or not to be", "that is the question"]
COUNTS = {"to": 2, "be": 2, "or": 1, "not": 1, "that": 1, "is": 1, "the": 1, "question": 1}


@contextlib.contextmanager
def word_count(clients, application, source, sink, state):
    command = ["java", *JVM, "-cp", f"{CACHE}/java:{CACHE}/kafka-libs/*",
               f"-Dlog4j2.configurationFile={ROOT}/tests/kafka/log4j2.properties",
               "WordCount", clients.bootstrap, application, source, sink, str(state)]
    with open(state.parent / "streams.log", "ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        yield
        process.stdin.close()
        assert process.wait(timeout=60) == 0, (state.parent / "streams.log").read_text()[-3000:]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(timeout=10)


def wait_for_counts(clients, sink, expected):
    """Reads the counts until the last ones are as expected; at least once, so earlier ones may repeat."""
    counts = {}
    consumer = clients.consumer(name_for("group", "counts"))
    consumer.assign([confluent_kafka.TopicPartition(sink, partition, 0) for partition in range(2)])

    def arrived():
        message = consumer.poll(0.2)
        if message and not message.error():
            counts[message.key().decode()] = int.from_bytes(message.value(), "big")
        return counts == expected

    try:
        wait_for(arrived, 90, f"the counts {expected}")
    finally:
        consumer.close()


def test_a_word_count_counts_and_goes_on_from_its_state_when_it_was_lost(clients, kind, tmp_path):
    source, sink = (clients.topic(kind, what, partitions=2) for what in ["lines", "counts"])
    application = name_for("streams", "words")
    clients.produce(source, [line.encode() for line in LINES])
    with word_count(clients, application, source, sink, tmp_path / "state-1"):
        wait_for_counts(clients, sink, COUNTS)
    clients.produce(source, [line.encode() for line in LINES], partition=1)
    # Another state directory: what was counted comes from the changelog, which is a topic.
    with word_count(clients, application, source, sink, tmp_path / "state-2"):
        wait_for_counts(clients, sink, {word: 2 * count for word, count in COUNTS.items()})
