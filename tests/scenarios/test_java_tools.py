"""The command line tools that come with Kafka, through the proxy only, on topics of both kinds."""

import re

import pytest

from clients import name_for, numbered, seconds_apart

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"


def columns(text, first):
    """The rows of a table whose first column starts so, split at blanks."""
    return [line.split() for line in text.splitlines() if line.startswith(first)]


def test_kafka_topics_creates_describes_grows_and_deletes(clients, kind):
    topic = name_for(kind, "tool")
    created = clients.tool(TOPICS, "--create", "--topic", topic, "--partitions", "2")
    assert f"Created topic {topic}." in created
    assert clients.is_diskless(topic) == (kind == "diskless")
    described = clients.tool(TOPICS, "--describe", "--topic", topic)
    assert "PartitionCount: 2" in described
    leaders = [int(leader) for leader in re.findall(r"Leader: (\d+)", described)]
    assert len(leaders) == 2
    assert all((leader >= 100_000) == (kind == "diskless") for leader in leaders), described
    clients.tool(TOPICS, "--alter", "--topic", topic, "--partitions", "3")
    assert "PartitionCount: 3" in clients.tool(TOPICS, "--describe", "--topic", topic)
    clients.produce(topic, numbered(2), partition=2)
    assert [m.offset() for m in clients.read(topic, 2, partition=2)] == [0, 1]
    assert topic in clients.tool(TOPICS, "--list").splitlines()
    clients.tool(TOPICS, "--delete", "--topic", topic)
    assert topic not in clients.tool(TOPICS, "--list").splitlines()


def test_kafka_configs_describes_and_alters_retention(clients, kind):
    topic = clients.topic(kind, "tool")
    entity = ["--entity-type", "topics", "--entity-name", topic]
    clients.tool(CONFIGS, "--alter", *entity, "--add-config", "retention.ms=3600000")
    described = clients.tool(CONFIGS, "--describe", *entity)
    assert "retention.ms=3600000" in described
    assert ("diskless.enable=true" in described) == (kind == "diskless")
    clients.tool(CONFIGS, "--alter", *entity, "--delete-config", "retention.ms")
    described = clients.tool(CONFIGS, "--describe", *entity)
    assert "retention.ms" not in described
    assert ("diskless.enable=true" in described) == (kind == "diskless")


def test_console_producer_and_consumer_pass_keys_and_values(clients, kind):
    topic = clients.topic(kind, "tool")
    lines = [f"key-{i}:value-{i}" for i in range(20)]
    clients.tool(CONSOLE_PRODUCER, "--topic", topic, "--reader-property", "parse.key=true", "--reader-property",
                 "key.separator=:", input="\n".join(lines) + "\n")
    read = clients.tool(CONSOLE_CONSUMER, "--topic", topic, "--from-beginning", "--max-messages", "20",
                        "--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    assert [line for line in read.splitlines() if line.startswith("key-")] == lines


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_the_console_consumer_is_described_reset_and_read_again(clients, kind, protocol):
    topic = clients.topic(kind, "tool")
    group = name_for("group", "tool")
    clients.produce(topic, numbered(10))

    def read(count):
        out = clients.tool(CONSOLE_CONSUMER, "--topic", topic, "--group", group, "--max-messages", str(count),
                           "--timeout-ms", "30000", "--command-property", f"group.protocol={protocol}",
                           "--command-property", "auto.offset.reset=earliest")
        return [line for line in out.splitlines() if line.startswith("value-")]

    assert read(10) == [f"value-{i}" for i in range(10)]
    described = columns(clients.tool(GROUPS, "--describe", "--group", group), group)
    assert len(described) == 1
    # Group, topic and partition; committed offset, end and lag follow.
    assert described[0][:3] == [group, topic, "0"]
    assert [cell for cell in described[0][3:] if cell != "-"] == ["10", "10", "0"]
    assert group in clients.tool(GROUPS, "--list").splitlines()
    clients.tool(GROUPS, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    clients.produce(topic, [b"value-10"])
    assert read(11) == [f"value-{i}" for i in range(11)]


def test_get_offsets_answers_ends_and_times(clients, kind):
    topic = clients.topic(kind, "tool", partitions=2)
    times = seconds_apart(5)
    # The record with the largest timestamp is not the last one.
    clients.produce(topic, numbered(5), timestamps=[times[0], times[1], times[4], times[2], times[3]])

    def offsets(time):
        out = clients.tool(OFFSETS, "--topic", topic, "--time", str(time))
        return [line.removeprefix(f"{topic}:") for line in out.splitlines() if line.startswith(f"{topic}:")]

    assert offsets("earliest") == ["0:0", "1:0"]
    assert offsets("latest") == ["0:5", "1:0"]
    # The tool leaves out a partition where there is no such record.
    assert offsets("max-timestamp") == ["0:2"]
    assert offsets(times[1]) == ["0:1"]
    assert offsets(times[1] + 1) == ["0:2"]
    assert offsets(times[4] + 1) == []


def test_the_performance_tools_write_and_read_all_their_records(clients, kind):
    topic = clients.topic(kind, "tool", partitions=3)
    wrote = clients.tool(PRODUCER_PERFORMANCE, "--topic", topic, "--num-records", "20000", "--record-size", "512",
                         "--throughput", "-1")
    assert re.search(r"^20000 records sent", wrote, re.MULTILINE), wrote
    read = clients.tool(CONSUMER_PERFORMANCE, "--topic", topic, "--num-records", "20000", "--timeout", "20000",
                        "--hide-header")
    rows = [line.split(", ") for line in read.splitlines() if re.match(r"\d{4}-\d\d-\d\d .*, ", line)]
    assert int(rows[0][4]) == 20000, read
