#!/usr/bin/env python3
"""Kafka directly, passed through and diskless, side by side in one run, interleaved; prints a Markdown table.

    tests/bench/compare.py                              all groups, seven rounds, about half an hour
    tests/bench/compare.py --rounds 3 --groups through  a part: through, warn, store, cold, latency, light, tail, idle
    tests/bench/compare.py --records 300000             smaller rounds

Every figure comes from `sidestream bench` (librdkafka), run by this script against each address in turn, but for one that
needs Kafka's Java producer. Shared machines are noisy: compare within a run, never across runs. Medians are shown with the
least and the most. CPU is the proxy's, user and system, as the kernel accounts it, all its threads included.

`tests/run` must have fetched Kafka before, and built the release binary (or set SIDESTREAM_BINARY).
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scenarios"))

from harness import BINARY, Kafka, Proxy, kafka_tool, wait_for  # noqa: E402

GIB = 1 << 30
TICKS = os.sysconf("SC_CLK_TCK")
GROUPS = ["through", "warn", "store", "cold", "latency", "light", "tail", "idle"]


def cpu_seconds(proxy):
    fields = pathlib.Path(f"/proc/{proxy.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mib(proxy):
    status = pathlib.Path(f"/proc/{proxy.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024


def puts(proxy):
    return proxy.metrics().get('sidestream_object_store_requests_total{operation="put"}', 0)


class Figures:
    """Rows of samples, in the order in which they were first seen."""

    def __init__(self):
        self.rows = {}

    def add(self, row, column, value):
        self.rows.setdefault((row, column), []).append(value)
        print(f"  {row:<44} {column:<26} {value:10.3f}", flush=True)

    def ratio(self, row, column, of, to):
        """Round by round, so that what slowed both cancels out."""
        pairs = zip(self.rows.get(of, []), self.rows.get(to, []))
        for value, base in pairs:
            self.rows.setdefault((row, column), []).append(value / base)

    def markdown(self):
        lines = ["| what | figure | median | least - most | rounds |", "|---|---|---|---|---|"]
        for (row, column), values in self.rows.items():
            middle, least, most = statistics.median(values), min(values), max(values)
            shown = "" if len(values) == 1 else f"{number(least)} - {number(most)}"
            lines.append(f"| {row} | {column} | {number(middle)} | {shown} | {len(values)} |")
        return "\n".join(lines)


def number(value):
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"


class Lab:
    """One broker, and proxies made when a group first asks for them."""

    def __init__(self, stack, options):
        self.stack, self.options = stack, options
        self.figures = Figures()
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="sidestream-bench-", dir=memory_directory()))
        stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self.kafka = Kafka(1)
        stack.callback(self.kafka.stop)
        self.proxies = {}
        self.names = 0

    def proxy(self, name, **settings):
        if name not in self.proxies:
            dotted = {key.replace("__", "."): value for key, value in settings.items()}
            proxy = Proxy(self.kafka, self.directory / name, proxy_id=len(self.proxies) + 1, settings={
                "store.url": "memory://", "metadata.topic": f"__diskless_{name}", **dotted})
            self.stack.callback(proxy.stop)
            self.proxies[name] = proxy
        return self.proxies[name]

    def topic(self, kind):
        self.names += 1
        return f"{kind}-{self.names}"

    def bench(self, *arguments):
        done = subprocess.run([str(BINARY), "bench", *map(str, arguments), "--json"], stdout=subprocess.PIPE, text=True,
                              timeout=900, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"exit code {done.returncode} of {arguments}: {done.stdout}")
        return json.loads(done.stdout)

    def measured(self, proxy, *arguments):
        """A benchmark's report, and the proxy's CPU seconds per GiB meanwhile."""
        before = cpu_seconds(proxy) if proxy else 0
        report = self.bench(*arguments)
        used = cpu_seconds(proxy) - before if proxy else 0
        return report, used / max(report["bytes"], 1) * GIB

    def produce(self, row, proxy, topic, records, *more, partitions=12):
        address = proxy.bootstrap if proxy else self.kafka.bootstrap
        report, cpu = self.measured(proxy, "produce", "--bootstrap", address, "--topic", topic, "--create", partitions,
                                    "--records", records, *more)
        self.figures.add(row, "produce MiB/s", report["mib_per_second"])
        if proxy:
            self.figures.add(row, "produce CPU s/GiB", cpu)
        return report

    def consume(self, row, proxy, topic):
        address = proxy.bootstrap if proxy else self.kafka.bootstrap
        report, cpu = self.measured(proxy, "consume", "--bootstrap", address, "--topic", topic)
        self.figures.add(row, "consume MiB/s", report["mib_per_second"])
        if proxy:
            self.figures.add(row, "consume CPU s/GiB", cpu)

    def empty(self, proxy):
        """Gives the memory of a store in memory back: nothing is ever deleted from one."""
        proxy.terminate()
        proxy.start()

    def delete(self, *topics):
        for topic in topics:
            kafka_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.kafka.bootstrap, "--delete",
                       "--topic", topic)


def memory_directory():
    """A directory without a disk under it, where there is one: what is measured is the proxy."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def through(lab):
    """Throughput: directly, passed through, and diskless over a store without latency."""
    proxy = lab.proxy("memory")
    for _ in range(lab.options.rounds):
        direct, passed, diskless = lab.topic("direct"), lab.topic("passed"), lab.topic("diskless")
        for row, through, topic in [("direct", None, direct), ("pass-through", proxy, passed),
                                    ("diskless, memory store", proxy, diskless)]:
            lab.produce(row, through, topic, lab.options.records)
            lab.consume(row, through, topic)
        lab.figures.add("diskless, memory store", "resident MiB after it", resident_mib(proxy))
        lab.delete(direct, passed)
        lab.empty(proxy)
    for row in ["pass-through", "diskless, memory store"]:
        for way in ["produce", "consume"]:
            lab.figures.ratio(f"{row} / direct", f"{way} ratio", (row, f"{way} MiB/s"), ("direct", f"{way} MiB/s"))


def warn(lab):
    """A producer that is not idempotent, which diskless.idempotence = "warn" lets in."""
    proxy = lab.proxy("warn", diskless__idempotence="warn")
    for _ in range(lab.options.rounds):
        for partitions in [1, 12]:
            row = f"not idempotent, memory store, {partitions} partition(s)"
            lab.produce(row, proxy, lab.topic("diskless"), lab.options.records, "--idempotence", "false",
                        partitions=partitions)
            lab.empty(proxy)


def store(lab):
    """A store with a cloud's latency: PUT 50 ms, GET 15 ms."""
    proxy = lab.proxy("slow", store__simulate="put=50,get=15")
    records = lab.options.records // 2
    for _ in range(lab.options.rounds):
        lab.produce("PUT 50: librdkafka, 12 partitions", proxy, lab.topic("diskless"), records)
        lab.produce("PUT 50: librdkafka, 1 partition", proxy, lab.topic("diskless"), records // 5, partitions=1)
        lab.produce("PUT 50: two librdkafka producers, 12", proxy, lab.topic("diskless"), records, "--producers", 2)
        rate = java_produce(proxy, lab.topic("diskless"), records // 2)
        lab.figures.add("PUT 50: Java, 1 partition", "produce MiB/s", rate)
        lab.empty(proxy)


def java_produce(proxy, topic, records):
    kafka_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", proxy.bootstrap, "--create", "--topic", topic)
    output = kafka_tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(records), "--record-size",
        "1024", "--throughput", "-1", "--bootstrap-server", proxy.bootstrap, "--command-property", "batch.size=1000000",
        "linger.ms=5", "buffer.memory=134217728", timeout=600)
    # With the start of the JVM's compiler in it, as that of any short run.
    return float(re.search(r"\(([\d.]+) MB/sec\)", output.strip().splitlines()[-1]).group(1))


def cold(lab):
    """Reading what another process wrote, from an empty cache; then from the cache; and Kafka from its page cache."""
    proxy = lab.proxy("cold", store__url=f"file://{lab.directory}/objects", store__simulate="put=50,get=15")
    for _ in range(lab.options.rounds):
        direct, diskless = lab.topic("direct"), lab.topic("diskless")
        lab.bench("produce", "--bootstrap", lab.kafka.bootstrap, "--topic", direct, "--create", 12, "--records",
                  lab.options.records // 2)
        lab.bench("produce", "--bootstrap", proxy.bootstrap, "--topic", diskless, "--create", 12, "--records",
                  lab.options.records // 2)
        proxy.terminate()
        proxy.start()
        lab.consume("cold cache, GET 15", proxy, diskless)
        lab.consume("from the cache", proxy, diskless)
        lab.consume("direct, page cache", None, direct)
        lab.delete(direct)
    lab.figures.ratio("from the cache / direct", "consume ratio", ("from the cache", "consume MiB/s"),
                      ("direct, page cache", "consume MiB/s"))


def latency(lab):
    """What passing through adds at 1,000 records a second."""
    proxy = lab.proxy("memory")
    for _ in range(lab.options.rounds):
        for row, address in [("direct", lab.kafka.bootstrap), ("pass-through", proxy.bootstrap)]:
            topic = lab.topic("latency")
            report = lab.bench("e2e", "--bootstrap", address, "--topic", topic, "--create", 12, "--rate", 1000, "--for",
                               "8s", "--linger-ms", 0)
            lab.figures.add(f"{row}, 1000 records/s", "ack p50 ms", report["ack_ms"]["p50"])
            lab.figures.add(f"{row}, 1000 records/s", "end to end p50 ms", report["e2e_ms"]["p50"])
            lab.delete(topic)


def light(lab):
    """Little traffic: the early roll answers before the window is over, within the PUT budget.

    librdkafka has five requests of one partition each on their way, and four PUTs a second answer them: a producer that
    sends more often than that waits for itself. Many producers do not.
    """
    proxy = lab.proxy("slow", store__simulate="put=50,get=15")
    # The producers' own start, some hundred milliseconds, is in the slowest hundredth of a short run.
    for rate, producers, seconds in [(2, 1, 30), (10, 1, 30), (100, 20, 60), (100, 1, 30)]:
        row = f"PUT 50, {rate} records/s, {producers} producer(s)"
        before = puts(proxy)
        report = lab.bench("produce", "--bootstrap", proxy.bootstrap, "--topic", lab.topic("diskless"), "--create", 12,
                           "--rate", rate, "--records", rate * seconds, "--producers", producers)
        for name in ["p50", "p99"]:
            lab.figures.add(row, f"ack {name} ms", report["ack_ms"][name])
        lab.figures.add(row, "PUTs a second", (puts(proxy) - before) / report["seconds"])


def tail(lab):
    """The latencies of S3, long tail included."""
    proxy = lab.proxy("s3", store__simulate="s3")
    report = lab.bench("e2e", "--bootstrap", proxy.bootstrap, "--topic", lab.topic("diskless"), "--create", 12, "--rate",
                       1000, "--for", "60s")
    for what in ["ack", "e2e"]:
        for name, shown in [("p50", "p50"), ("p99", "p99"), ("p999", "p99.9")]:
            lab.figures.add("simulated S3, 1000 records/s", f"{what} {shown} ms", report[f"{what}_ms"][name])


def idle(lab):
    """A proxy that nobody uses, and what a partition costs."""
    proxy = lab.proxy("idle")
    wait_for(lambda: "sidestream_serving 1" in proxy.get("/metrics"), 30, "the proxy to serve")
    before, used, at = puts(proxy), cpu_seconds(proxy), time.monotonic()
    time.sleep(10)  # the measurement itself
    lab.figures.add("idle", "cores", (cpu_seconds(proxy) - used) / (time.monotonic() - at))
    lab.figures.add("idle", "PUTs", puts(proxy) - before)
    resident = resident_mib(proxy)
    lab.figures.add("idle", "resident MiB", resident)
    lab.bench("produce", "--bootstrap", proxy.bootstrap, "--topic", lab.topic("diskless"), "--create", 1000, "--records",
              10_000, "--record-bytes", 100)
    lab.figures.add("1000 diskless partitions", "KiB each", (resident_mib(proxy) - resident) * 1024 / 1000)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--records", type=int, default=1_000_000, help="of 1 KiB each, a run of the through group")
    parser.add_argument("--groups", default=",".join(GROUPS))
    options = parser.parse_args()
    unknown = set(options.groups.split(",")) - set(GROUPS)
    if unknown:
        parser.error(f"there is no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    with contextlib.ExitStack() as stack:
        lab = Lab(stack, options)
        for group in options.groups.split(","):
            print(f"{group}: {globals()[group].__doc__}", flush=True)
            globals()[group](lab)
        print(f"\n{os.cpu_count()} cores, {processor()}, {platform.system()} {platform.release()}; records of 1 KiB\n")
        print(lab.figures.markdown())


def processor():
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
