"""Driver of aiokafka."""

import asyncio
import sys

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code

from lines import record, serve, to_bytes


def code_of(error):
    return getattr(error, "errno", None)


def check(code, message):
    """This client hands over answers as they are, errors included."""
    if code:
        raise for_code(code)(message)


class Member:
    """A consumer and the task that reads it."""

    def __init__(self, consumer):
        self.consumer = consumer
        self.records = []
        self.error = None
        self.changed = asyncio.Condition()
        self.task = asyncio.create_task(self._run())

    async def _run(self):
        while True:
            try:
                batches = await self.consumer.getmany(timeout_ms=100)
            except aiokafka.errors.KafkaError as error:
                self.error = error
                return
            async with self.changed:
                self.records += [record(r.topic, r.partition, r.offset, r.key, r.value, r.headers, r.timestamp)
                                 for batch in batches.values() for r in batch]
                self.changed.notify_all()

    async def take(self, count, seconds):
        async with self.changed:
            try:
                enough = self.changed.wait_for(lambda: len(self.records) >= count)
                await asyncio.wait_for(enough, seconds)
            except asyncio.TimeoutError:
                pass
            taken, self.records = self.records[:count], self.records[count:]
        if self.error and not taken:
            raise self.error
        return {"records": taken}

    async def stop_reading(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.records.clear()


class Client:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self._admin = None
        self._starting = None
        self.members = {}

    async def admin(self):
        self._starting = self._starting or asyncio.Lock()
        async with self._starting:
            if not self._admin:
                self._admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
                await self._admin.start()
        return self._admin

    async def hello(self):
        return {"version": aiokafka.__version__}

    async def produce(self, topic, partition, records, codec="none", idempotent=True):
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, enable_idempotence=idempotent, linger_ms=20,
                                    compression_type=None if codec == "none" else codec)
        await producer.start()
        try:
            sent = [await producer.send(topic, to_bytes(r["value"]), to_bytes(r.get("key")), partition,
                                        r.get("timestamp"), [(n, to_bytes(v)) for n, v in r.get("headers", [])])
                    for r in records]
            return {"first": (await asyncio.gather(*sent))[0].offset}
        finally:
            await producer.stop()

    def _consumer(self, **settings):
        return AIOKafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest",
                                enable_auto_commit=False, metadata_max_age_ms=1000, **settings)

    async def _move(self, consumer, partition, at):
        if at == "begin":
            await consumer.seek_to_beginning(partition)
        elif at == "end":
            await consumer.seek_to_end(partition)
        elif "timestamp" in at:
            found = await consumer.offsets_for_times({partition: at["timestamp"]})
            consumer.seek(partition, found[partition].offset)
        else:
            consumer.seek(partition, at["offset"])

    async def assign(self, member, topic, partition, at):
        consumer = self._consumer()
        await consumer.start()
        consumer.assign([TopicPartition(topic, partition)])
        await self._move(consumer, TopicPartition(topic, partition), at)
        self.members[member] = Member(consumer)

    async def seek(self, member, topic, partition, at):
        before = self.members[member]
        await before.stop_reading()
        await self._move(before.consumer, TopicPartition(topic, partition), at)
        self.members[member] = Member(before.consumer)

    async def join(self, member, group, topics=None, pattern=None, protocol="classic"):
        if protocol != "classic":
            raise NotImplementedError
        consumer = self._consumer(group_id=group)
        consumer.subscribe(topics=topics or (), pattern=pattern)
        await consumer.start()
        self.members[member] = Member(consumer)

    async def take(self, member, count, seconds):
        return await self.members[member].take(count, seconds)

    async def commit(self, member, topic, partition, offset):
        await self.members[member].consumer.commit({TopicPartition(topic, partition): offset})

    async def pause(self, member, topic, partition):
        self.members[member].consumer.pause(TopicPartition(topic, partition))

    async def resume(self, member, topic, partition):
        self.members[member].consumer.resume(TopicPartition(topic, partition))

    async def leave(self, member):
        left = self.members.pop(member)
        await left.stop_reading()
        await left.consumer.stop()

    async def create(self, topic, partitions, config):
        answer = await (await self.admin()).create_topics([NewTopic(topic, partitions, 1, topic_configs=config)])
        check(*answer.topic_errors[0][1:3])

    async def topics(self):
        return {"topics": await (await self.admin()).list_topics()}

    async def describe(self, topic):
        described = (await (await self.admin()).describe_topics([topic]))[0]
        return {"partitions": [{"partition": p["partition"], "leader": p["leader"], "replicas": len(p["replicas"])}
                               for p in described["partitions"]]}

    async def create_partitions(self, topic, total):
        answer = await (await self.admin()).create_partitions({topic: NewPartitions(total)})
        check(*answer.topic_errors[0][1:3])

    async def configs(self, topic):
        answers = await (await self.admin()).describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        code, message, _, _, entries = answers[0].resources[0]
        check(code, message)
        return {"configs": {entry[0]: entry[1] for entry in entries}}

    async def alter(self, topic, name, value):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
        answers = await (await self.admin()).alter_configs([resource])
        check(*answers[0].resources[0][:2])

    async def delete_records(self, topic, partition, before):
        await (await self.admin()).delete_records({TopicPartition(topic, partition): RecordsToDelete(before)})

    async def delete_topic(self, topic):
        answer = await (await self.admin()).delete_topics([topic])
        check(answer.topic_error_codes[0][1], topic)

    async def groups(self):
        return {"groups": [g[0] for g in await (await self.admin()).list_consumer_groups()]}

    async def describe_group(self, group):
        answers = await (await self.admin()).describe_consumer_groups([group])
        code, _, state, _, _, members = answers[0].groups[0][:6]
        check(code, group)
        return {"state": state, "members": len(members)}

    async def cluster(self):
        described = await (await self.admin()).describe_cluster()
        return {"cluster": described["cluster_id"],
                "brokers": [[b["node_id"], b["host"], b["port"]] for b in described["brokers"]]}


serve(Client(sys.argv[1]), code_of)
