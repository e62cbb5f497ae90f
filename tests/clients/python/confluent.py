"""Driver of confluent-kafka."""

import sys

import confluent_kafka
from confluent_kafka import TopicPartition, admin

from lines import Member, record, serve, to_bytes


def code_of(error):
    if isinstance(error, confluent_kafka.KafkaException) and error.args[0].code() >= 0:
        return error.args[0].code()
    return None


def poll(consumer):
    records = []
    for message in consumer.consume(500, 0.05):
        if message.error():
            continue
        records.append(record(message.topic(), message.partition(), message.offset(), message.key(), message.value(),
                              message.headers(), message.timestamp()[1]))
    return records


class Client:
    def __init__(self, bootstrap):
        self.bootstrap = {"bootstrap.servers": bootstrap}
        self.admin = admin.AdminClient(self.bootstrap)
        self.producers = {}
        self.members = {}

    def hello(self):
        return {"version": confluent_kafka.__version__}

    def produce(self, topic, partition, records, codec="none", idempotent=True):
        settings = {"enable.idempotence": idempotent, "compression.type": codec, "linger.ms": 20,
                    "message.max.bytes": 1_048_588}
        producer = self.producers.setdefault((codec, idempotent), None) or confluent_kafka.Producer(
            {**self.bootstrap, **settings})
        self.producers[codec, idempotent] = producer
        reports = []
        for r in records:
            timestamp = {"timestamp": r["timestamp"]} if "timestamp" in r else {}
            headers = [(name, to_bytes(value)) for name, value in r.get("headers", [])]
            producer.produce(topic, to_bytes(r["value"]), to_bytes(r.get("key")), partition, headers=headers,
                             on_delivery=lambda *report: reports.append(report), **timestamp)
        if producer.flush(60):
            raise TimeoutError("records were not answered")
        for error, _ in reports:
            if error:
                raise confluent_kafka.KafkaException(error)
        return {"first": reports[0][1].offset()}

    def _consumer(self, group, **settings):
        return confluent_kafka.Consumer({
            **self.bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1000, **settings,
        })

    def _position(self, consumer, topic, partition, at):
        if at in ("begin", "end"):
            # As a number: the end is resolved now, not at some later fetch.
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            return TopicPartition(topic, partition, low if at == "begin" else high)
        if "timestamp" in at:
            return consumer.offsets_for_times([TopicPartition(topic, partition, at["timestamp"])], timeout=30)[0]
        return TopicPartition(topic, partition, at["offset"])

    def assign(self, member, topic, partition, at):
        consumer = self._consumer("not-used")
        consumer.assign([self._position(consumer, topic, partition, at)])
        self.members[member] = Member(consumer, poll)

    def seek(self, member, topic, partition, at):
        def move(consumer):
            consumer.seek(self._position(consumer, topic, partition, at))
            self.members[member].forget()

        self.members[member].call(move)

    def join(self, member, group, topics=None, pattern=None, protocol="classic"):
        consumer = self._consumer(group, **{"group.protocol": protocol})
        consumer.subscribe(topics or [f"^{pattern}"])
        self.members[member] = Member(consumer, poll)

    def take(self, member, count, seconds):
        return self.members[member].take(count, seconds)

    def commit(self, member, topic, partition, offset):
        offsets = [TopicPartition(topic, partition, offset)]
        self.members[member].call(lambda c: c.commit(offsets=offsets, asynchronous=False))

    def pause(self, member, topic, partition):
        self.members[member].call(lambda c: c.pause([TopicPartition(topic, partition)]))

    def resume(self, member, topic, partition):
        self.members[member].call(lambda c: c.resume([TopicPartition(topic, partition)]))

    def leave(self, member):
        self.members.pop(member).close()

    def create(self, topic, partitions, config):
        self.admin.create_topics([admin.NewTopic(topic, partitions, config=config)])[topic].result()

    def topics(self):
        return {"topics": list(self.admin.list_topics(timeout=30).topics)}

    def describe(self, topic):
        described = self.admin.describe_topics(confluent_kafka.TopicCollection([topic]))[topic].result()
        return {"partitions": [{"partition": p.id, "leader": p.leader.id, "replicas": len(p.replicas)}
                               for p in described.partitions]}

    def create_partitions(self, topic, total):
        self.admin.create_partitions([admin.NewPartitions(topic, total)])[topic].result()

    def configs(self, topic):
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic)
        entries = self.admin.describe_configs([resource])[resource].result()
        return {"configs": {name: entry.value for name, entry in entries.items()}}

    def alter(self, topic, name, value):
        entry = admin.ConfigEntry(name, value, incremental_operation=admin.AlterConfigOpType.SET)
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result()

    def delete_records(self, topic, partition, before):
        wanted = TopicPartition(topic, partition, before)
        self.admin.delete_records([wanted])[wanted].result()

    def delete_topic(self, topic):
        self.admin.delete_topics([topic])[topic].result()

    def groups(self):
        return {"groups": [g.group_id for g in self.admin.list_consumer_groups().result().valid]}

    def describe_group(self, group):
        described = self.admin.describe_consumer_groups([group])[group].result()
        return {"state": described.state.name, "members": len(described.members)}

    def cluster(self):
        described = self.admin.describe_cluster().result()
        return {"cluster": described.cluster_id, "brokers": [[n.id, n.host, n.port] for n in described.nodes]}


serve(Client(sys.argv[1]), code_of)
