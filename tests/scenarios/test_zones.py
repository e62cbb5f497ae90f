"""Two proxies in two zones before one Kafka and one store: what one writes, the other reads."""

import os

import pytest

from workload import Load, new_topic, read_and_verify, running_proxies

RECORDS = int(os.environ.get("SIDESTREAM_RECORDS", 1_000_000))
PARTITIONS = 6


@pytest.fixture(scope="module")
def zones(kafka3):
    with running_proxies(kafka3, zones=("zone-a", "zone-b")) as proxies:
        yield proxies


def test_everything_written_in_one_zone_is_read_in_the_other(zones):
    a, b = zones
    topic = new_topic(a.bootstrap, PARTITIONS)
    load = Load(a.bootstrap, topic, PARTITIONS, rate=None, limit=RECORDS)
    load.finish(300)
    reading = read_and_verify(b.bootstrap, topic, [load], seconds=300)
    assert reading.records == RECORDS
    assert read_and_verify(a.bootstrap, topic, [load], seconds=300) == reading


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_of_every_codec_arrive_as_they_were_sent(zones, codec):
    a, b = zones
    topic = new_topic(a.bootstrap, 2)
    count = min(RECORDS, 20_000)
    load = Load(a.bootstrap, topic, 2, rate=None, limit=count, settings={"compression.type": codec}).finish()
    assert read_and_verify(b.bootstrap, topic, [load]).records == count
    stored = a.metrics()[f'sidestream_topic_produced_bytes_total{{topic="{topic}"}}']
    assert (stored > count * 100) == (codec == "none"), f"{codec}: {stored} bytes for {count} records of 100 bytes"
