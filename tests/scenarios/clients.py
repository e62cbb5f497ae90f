"""What client scenarios share: topics of both kinds, and the three families of clients set up the same way."""

import itertools
import subprocess
import time

import confluent_kafka
from confluent_kafka import admin

from harness import kafka_tool, wait_for

KINDS = ["classic", "diskless"]
_numbers = itertools.count(1)


def name_for(kind, what):
    """A topic name that is used once; the proxy's settings make `diskless-.*` diskless."""
    return f"{kind}-{what}-{next(_numbers)}"


class Clients:
    """Clients of one proxy. They know no other address."""

    def __init__(self, proxy):
        self.proxy = proxy
        self.bootstrap = proxy.bootstrap
        self.admin = admin.AdminClient({"bootstrap.servers": self.bootstrap})

    def create(self, name, partitions=1, config=None):
        """Creates a topic and returns its name; raises what the broker answers."""
        new = admin.NewTopic(name, partitions, config=config or {})
        self.admin.create_topics([new], request_timeout=30)[name].result()
        return name

    def topic(self, kind, what, partitions=1, config=None):
        return self.create(name_for(kind, what), partitions, config)

    def delete(self, name):
        self.admin.delete_topics([name], request_timeout=30)[name].result()

    def config(self, name):
        """The topic's settings, once the broker that is asked knows of the topic: each hears of it in its own time."""
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, name)

        def described():
            try:
                return self.admin.describe_configs([resource])[resource].result()
            except confluent_kafka.KafkaException as error:
                if error.args[0].code() != confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
                return None

        entries = wait_for(described, 30, f"the settings of {name}")
        return {key: entry.value for key, entry in entries.items()}

    def alter(self, name, key, value, operation=admin.AlterConfigOpType.SET):
        entry = admin.ConfigEntry(key, value, incremental_operation=operation)
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, name, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result()

    def is_diskless(self, name):
        """What the proxy says of the topic, as any client may ask it."""
        return self.config(name).get("diskless.enable") == "true"

    def producer(self, **settings):
        dotted = {key.replace("_", "."): value for key, value in settings.items()}
        return confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, **dotted})

    def produce(self, topic, values, partition=0, timestamps=None, **settings):
        """Produces in order and returns the delivered messages; raises the first delivery error."""
        reports = []
        producer = self.producer(**settings)
        for i, value in enumerate(values):
            timestamp = {"timestamp": timestamps[i]} if timestamps else {}
            producer.produce(topic, value, partition=partition, on_delivery=lambda *r: reports.append(r), **timestamp)
        left = producer.flush(60)
        assert left == 0, f"{left} records were not answered"
        for error, _ in reports:
            if error:
                raise confluent_kafka.KafkaException(error)
        return [message for _, message in reports]

    def consumer(self, group, **settings):
        dotted = {key.replace("_", "."): value for key, value in settings.items()}
        return confluent_kafka.Consumer({
            "bootstrap.servers": self.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1000,
            **dotted,
        })

    def read(self, topic, count, partition=0, offset=0, **settings):
        """The first records of a partition, by assignment."""
        consumer = self.consumer(name_for("group", "assigned"), **settings)
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, offset)])
            return take(consumer, count)
        finally:
            consumer.close()

    def tool(self, java_class, *arguments, **options):
        """One of Kafka's own tools; this proxy is its only address."""
        return kafka_tool(java_class, "--bootstrap-server", self.bootstrap, *arguments, **options)

    def kcat(self, *arguments, input=None):
        """Runs kcat to its end, however it ends."""
        return subprocess.run(["kcat", "-b", self.bootstrap, *arguments], input=input, text=True, capture_output=True,
                              timeout=60)


def take(consumer, count, seconds=60):
    """The next records, exactly as many as asked; raises what the consumer reports."""
    taken = []
    deadline = time.monotonic() + seconds
    while len(taken) < count:
        message = consumer.poll(0.2)
        if message is None:
            assert time.monotonic() < deadline, f"{len(taken)} of {count} records came in {seconds} s"
        elif message.error():
            raise confluent_kafka.KafkaException(message.error())
        else:
            taken.append(message)
    return taken


def seconds_apart(count):
    """Timestamps a second apart, recent enough for retention to leave their records alone."""
    first = int(time.time() - 3600) * 1000
    return [first + 1000 * i for i in range(count)]


def values(messages):
    return [m.value() for m in messages]


def numbered(count, prefix="value"):
    return [f"{prefix}-{i}".encode() for i in range(count)]
