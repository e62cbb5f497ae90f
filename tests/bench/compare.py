#!/usr/bin/env python3
"""Side by side, in one run: direct Kafka, pass-through, and diskless topics, with Kafka's own performance tools.

    tests/bench/compare.py [ROUNDS] [RECORDS]

One broker, twelve partitions, records of 1 KiB, one Java producer or consumer at a time. Rounds are interleaved, so that
a noisy machine disturbs all alike; the table gives medians with the least and the most. Needs what `tests/run` fetches.
"""

import pathlib
import re
import shutil
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scenarios"))

from harness import Kafka, Proxy, kafka_tool  # noqa: E402

PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
TOPICS = "org.apache.kafka.tools.TopicCommand"
PARTITIONS = 12


def cpu_seconds(proxy):
    """User and system time of the proxy's process so far."""
    fields = pathlib.Path(f"/proc/{proxy.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def produce(bootstrap, topic, records, batch):
    """MiB/s, and the median latency of an acknowledgement in milliseconds."""
    arguments = ["--topic", topic, "--num-records", str(records), "--record-size", "1024", "--throughput", "-1",
                 "--bootstrap-server", bootstrap, "--command-property", f"batch.size={batch}",
                 "--command-property", "linger.ms=5", "--command-property", "buffer.memory=268435456"]
    last = kafka_tool(PRODUCER, *arguments, timeout=600).strip().splitlines()[-1]
    rate = float(re.search(r"\(([\d.]+) MB/sec\)", last).group(1))
    latency = float(re.search(r"([\d.]+) ms 50th", last).group(1))
    return rate, latency


def consume(bootstrap, topic, records):
    """MiB/s while fetching, without the time of joining the group."""
    output = kafka_tool(CONSUMER, "--topic", topic, "--num-records", str(records), "--bootstrap-server", bootstrap,
                        "--timeout", "60000", timeout=600)
    return float(output.strip().splitlines()[-1].split(",")[8])


def measure(name, proxy, bootstrap, topic, records, batch, results):
    before = cpu_seconds(proxy) if proxy else 0
    rate, latency = produce(bootstrap, topic, records, batch)
    between = cpu_seconds(proxy) if proxy else 0
    fetched = consume(bootstrap, topic, records)
    after = cpu_seconds(proxy) if proxy else 0
    gib = records / (1 << 20)
    results.setdefault(name, []).append((rate, latency, fetched, (between - before) / gib, (after - between) / gib))
    print(f"  {name:<24} produce {rate:7.1f} MiB/s (p50 {latency:.0f} ms)  consume {fetched:7.1f} MiB/s", flush=True)


def table(results):
    columns = ["produce MiB/s", "ack p50 ms", "consume MiB/s", "CPU s/GiB in", "CPU s/GiB out"]
    print(f"\n{'':<24}" + "".join(f"{c:>24}" for c in columns))
    for name, rounds in results.items():
        cells = []
        for values in zip(*rounds):
            cells.append(f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})")
        print(f"{name:<24}" + "".join(f"{c:>24}" for c in cells))


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    records = int(sys.argv[2]) if len(sys.argv) > 2 else 200_000
    stores = pathlib.Path(tempfile.mkdtemp(prefix="sidestream-bench-"))
    kafka = Kafka(1)
    proxies = []
    try:
        memory = Proxy(kafka, stores, proxy_id=1, settings={
            "store.url": "memory://", "metadata.topic": "__diskless_memory"})
        proxies.append(memory)
        slow = Proxy(kafka, stores, proxy_id=2, settings={
            "store.url": "memory://", "store.simulate": "put=50,get=15", "metadata.topic": "__diskless_slow"})
        proxies.append(slow)
        results = {}
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", flush=True)
            names = {"direct": (None, kafka.bootstrap, f"classic-direct-{number}", 16384),
                     "pass-through": (memory, memory.bootstrap, f"classic-through-{number}", 16384),
                     "diskless, memory": (memory, memory.bootstrap, f"diskless-memory-{number}", 1_000_000),
                     "diskless, PUT 50 GET 15": (slow, slow.bootstrap, f"diskless-slow-{number}", 1_000_000)}
            for name, (proxy, bootstrap, topic, batch) in names.items():
                kafka_tool(TOPICS, "--bootstrap-server", bootstrap, "--create", "--topic", topic,
                           "--partitions", str(PARTITIONS))
                measure(name, proxy, bootstrap, topic, records, batch, results)
                kafka_tool(TOPICS, "--bootstrap-server", bootstrap, "--delete", "--topic", topic)
        table(results)
    finally:
        for proxy in proxies:
            proxy.stop()
        kafka.stop()
        shutil.rmtree(stores, ignore_errors=True)


if __name__ == "__main__":
    main()
