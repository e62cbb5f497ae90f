"""Writes ten records to a topic through a proxy and reads them back, with a stock client (confluent-kafka).

    python examples/produce_consume.py 127.0.0.1:9192 orders

Nothing here knows of Sidestream. The one thing that a diskless topic asks for is `enable.idempotence`.
"""

import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

RECORDS = 10
PARTITION = 0
TIMEOUT_SECONDS = 30


def produce(bootstrap, topic):
    """Writes the records; returns their offsets."""
    offsets = []

    def acknowledged(error, message):
        if error is not None:
            sys.exit(f"a record was not acknowledged: {error}")
        offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(topic, f"record {number}", partition=PARTITION, on_delivery=acknowledged)
    if producer.flush(TIMEOUT_SECONDS) > 0:
        sys.exit("the proxy did not answer in time")
    return offsets


def consume(bootstrap, topic, first):
    """Reads as many records as were written, from the first one's offset on."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        # Nothing is committed: this reads from a known offset.
        "group.id": "produce-consume-example",
        "enable.auto.commit": False,
    })
    consumer.assign([TopicPartition(topic, PARTITION, first)])
    deadline = time.monotonic() + TIMEOUT_SECONDS
    values = []
    while len(values) < RECORDS:
        if time.monotonic() > deadline:
            sys.exit(f"only {len(values)} of {RECORDS} records came back")
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error():
            sys.exit(f"a record cannot be read: {message.error()}")
        values.append(message.value().decode())
    consumer.close()
    return values


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: produce_consume.py BOOTSTRAP TOPIC")
    bootstrap, topic = sys.argv[1:]
    offsets = produce(bootstrap, topic)
    values = consume(bootstrap, topic, offsets[0])
    if values != [f"record {number}" for number in range(RECORDS)]:
        sys.exit(f"other records came back: {values}")
    print(f"wrote and read {RECORDS} records of {topic}, offsets {offsets[0]} to {offsets[-1]}")


if __name__ == "__main__":
    main()
