"""Consumer groups: Kafka keeps them, also where the records are not in Kafka."""

import confluent_kafka
import pytest

from clients import KINDS, name_for, numbered, take, values
from harness import wait_for

PROTOCOLS = ["classic", "consumer"]


def subscribe(clients, group, topics, protocol, **settings):
    consumer = clients.consumer(group, group_protocol=protocol, **settings)
    consumer.subscribe(topics)
    return consumer


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_commits_and_another_member_resumes(clients, kind, protocol):
    topic = clients.topic(kind, "group", partitions=2)
    group = name_for("group", "resume")
    for partition in range(2):
        clients.produce(topic, numbered(10, prefix=f"p{partition}"), partition=partition)
    first = subscribe(clients, group, [topic], protocol)
    try:
        taken = take(first, 13)
        first.commit(offsets=next_offsets(taken), asynchronous=False)
    finally:
        first.close()
    second = subscribe(clients, group, [topic], protocol)
    try:
        rest = take(second, 7)
        assert second.poll(1) is None
    finally:
        second.close()
    assert sorted(values(taken + rest)) == sorted(numbered(10, prefix="p0") + numbered(10, prefix="p1"))


def next_offsets(messages):
    """What to commit after these messages."""
    after = {}
    for message in messages:
        after[message.topic(), message.partition()] = message.offset() + 1
    return [confluent_kafka.TopicPartition(t, p, offset) for (t, p), offset in after.items()]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_group_reads_both_kinds_at_once(clients, protocol):
    topics = [clients.topic(kind, "mixed", partitions=2) for kind in KINDS]
    for topic in topics:
        for partition in range(2):
            clients.produce(topic, numbered(50, prefix=f"{topic}-{partition}"), partition=partition)
    consumer = subscribe(clients, name_for("group", "mixed"), topics, protocol)
    try:
        taken = take(consumer, 200)
        assert {(p.topic, p.partition) for p in consumer.assignment()} == {(t, p) for t in topics for p in range(2)}
    finally:
        consumer.close()
    for topic in topics:
        for partition in range(2):
            mine = [m.value() for m in taken if (m.topic(), m.partition()) == (topic, partition)]
            assert mine == numbered(50, prefix=f"{topic}-{partition}")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_the_partitions_of_both_kinds(clients, protocol):
    topics = [clients.topic(kind, "shared", partitions=4) for kind in KINDS]
    group = name_for("group", "shared")
    members = [subscribe(clients, group, topics, protocol) for _ in range(2)]

    def shared():
        for member in members:
            member.poll(0.1)
        held = [{(p.topic, p.partition) for p in member.assignment()} for member in members]
        return all(held) and len(held[0] | held[1]) == 8 and not held[0] & held[1]

    try:
        wait_for(shared, 60, "two members to share eight partitions")
    finally:
        for member in members:
            member.close()


def test_a_pattern_sees_both_kinds_and_topics_that_come_later(clients):
    mark = name_for("all", "pattern")
    early = [clients.create(f"{kind}-{mark}-early") for kind in KINDS]
    for topic in early:
        clients.produce(topic, [topic.encode()])
    consumer = subscribe(clients, name_for("group", "pattern"), [f"^.*-{mark}-.*"], "classic")
    try:
        taken = take(consumer, 2)
        assert sorted(values(taken)) == sorted(t.encode() for t in early)
        # What is not committed is read again when the late topics are shared out.
        consumer.commit(offsets=next_offsets(taken), asynchronous=False)
        late = [clients.create(f"{kind}-{mark}-late") for kind in KINDS]
        for topic in late:
            clients.produce(topic, [topic.encode()])
        assert sorted(values(take(consumer, 2))) == sorted(t.encode() for t in late)
    finally:
        consumer.close()


def test_the_admin_client_describes_a_group_and_its_offsets(clients, kind):
    topic = clients.topic(kind, "group")
    group = name_for("group", "described")
    clients.produce(topic, numbered(3))
    consumer = subscribe(clients, group, [topic], "classic")
    try:
        consumer.commit(offsets=next_offsets(take(consumer, 3)), asynchronous=False)
        described = clients.admin.describe_consumer_groups([group])[group].result()
        assigned = [p.topic for member in described.members for p in member.assignment.topic_partitions]
        assert assigned == [topic]
        listed = clients.admin.list_consumer_groups().result()
        assert group in [g.group_id for g in listed.valid] and not listed.errors
        wanted = confluent_kafka.ConsumerGroupTopicPartitions(group)
        offsets = clients.admin.list_consumer_group_offsets([wanted])[group].result()
        assert [(p.topic, p.offset) for p in offsets.topic_partitions] == [(topic, 3)]
    finally:
        consumer.close()
