"""Driver of kafka-python."""

import sys

import kafka
from kafka import TopicPartition
from kafka.admin import ConfigResource, KafkaAdminClient
from kafka.structs import OffsetAndMetadata

from lines import Member, record, serve, to_bytes


def code_of(error):
    return getattr(error, "errno", None)


def poll(consumer):
    # kafka-python 3.0 forgets a join that outlasts a poll, and begins anew.
    timeout = 500 if consumer.assignment() else 5000
    return [record(r.topic, r.partition, r.offset, r.key, r.value, r.headers, r.timestamp)
            for batch in consumer.poll(timeout_ms=timeout).values() for r in batch]


class Client:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        self.producers = {}
        self.members = {}

    def hello(self):
        return {"version": kafka.__version__}

    def produce(self, topic, partition, records, codec="none", idempotent=True):
        producer = self.producers.get((codec, idempotent)) or kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=idempotent, linger_ms=20,
            compression_type=None if codec == "none" else codec)
        self.producers[codec, idempotent] = producer
        sent = [producer.send(topic, to_bytes(r["value"]), to_bytes(r.get("key")), partition=partition,
                              headers=[(name, to_bytes(value)) for name, value in r.get("headers", [])],
                              timestamp_ms=r.get("timestamp")) for r in records]
        return {"first": [future.get(timeout=60).offset for future in sent][0]}

    def _consumer(self, **settings):
        return kafka.KafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest",
                                   enable_auto_commit=False, metadata_max_age_ms=1000, **settings)

    def _move(self, consumer, partition, at):
        if at == "begin":
            consumer.seek_to_beginning(partition)
        elif at == "end":
            consumer.seek_to_end(partition)
        elif "timestamp" in at:
            consumer.seek(partition, consumer.offsets_for_times({partition: at["timestamp"]})[partition].offset)
        else:
            consumer.seek(partition, at["offset"])
        consumer.position(partition)  # resolves it now

    def assign(self, member, topic, partition, at):
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, partition)])
        self._move(consumer, TopicPartition(topic, partition), at)
        self.members[member] = Member(consumer, poll)

    def seek(self, member, topic, partition, at):
        def move(consumer):
            self._move(consumer, TopicPartition(topic, partition), at)
            self.members[member].forget()

        self.members[member].call(move)

    def join(self, member, group, topics=None, pattern=None, protocol="classic"):
        if protocol != "classic":
            raise NotImplementedError
        consumer = self._consumer(group_id=group)
        consumer.subscribe(topics=topics or (), pattern=pattern)
        self.members[member] = Member(consumer, poll)

    def take(self, member, count, seconds):
        return self.members[member].take(count, seconds)

    def commit(self, member, topic, partition, offset):
        offsets = {TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}
        self.members[member].call(lambda c: c.commit(offsets))

    def pause(self, member, topic, partition):
        self.members[member].call(lambda c: c.pause(TopicPartition(topic, partition)))

    def resume(self, member, topic, partition):
        self.members[member].call(lambda c: c.resume(TopicPartition(topic, partition)))

    def leave(self, member):
        self.members.pop(member).close()

    def create(self, topic, partitions, config):
        self.admin.create_topics({topic: {"num_partitions": partitions, "configs": config}})

    def topics(self):
        return {"topics": self.admin.list_topics()}

    def describe(self, topic):
        described = self.admin.describe_topics([topic])[0]
        return {"partitions": [{"partition": p["partition_index"], "leader": p["leader_id"],
                                "replicas": len(p["replica_nodes"])} for p in described["partitions"]]}

    def create_partitions(self, topic, total):
        self.admin.create_partitions({topic: total})

    def configs(self, topic):
        described = self.admin.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")
        found = described["topic"][topic]
        return {"configs": {name: entry["value"] for name, entry in found.items()}}

    def alter(self, topic, name, value):
        done = self.admin.alter_configs([ConfigResource("TOPIC", topic, {name: value})])["topic"][topic]
        if done not in (None, "OK") and "NoError" not in str(done):
            raise RuntimeError(str(done))

    def delete_records(self, topic, partition, before):
        self.admin.delete_records({TopicPartition(topic, partition): before})

    def delete_topic(self, topic):
        self.admin.delete_topics([topic])

    def groups(self):
        return {"groups": [g["group_id"] for g in self.admin.list_groups()]}

    def describe_group(self, group):
        described = self.admin.describe_groups([group])[group]
        return {"state": described["group_state"], "members": len(described["members"])}

    def log_dirs(self, topic):
        return {"topics": sorted({t["name"] for broker in self.admin.describe_log_dirs()
                                  for d in broker["log_dirs"] for t in d["topics"]})}

    def cluster(self):
        described = self.admin.describe_cluster()
        return {"cluster": described["cluster_id"],
                "brokers": [[b["broker_id"], b["host"], b["port"]] for b in described["brokers"]]}


serve(Client(sys.argv[1]), code_of)
