#!/usr/bin/env python3
"""Many connections that do nothing beside a few that work: what each costs, and what the others notice.

    tests/bench/connections.py [--idle 900] [--active 100] [--rounds 4] [--seconds 5]

With --idle 9000 --active 1000 it needs a limit of 20,000 open files; the idle ones of the rounds then end their talk
before the proxy connects to Kafka for them, since every other connection is two files of the proxy. Both ends, the proxy and one Kafka broker share the
machine. Rounds without and with the idle connections take turns; each active connection asks for a topic's metadata once
a second, and every answer comes from Kafka over an upstream connection of its own. SIDESTREAM_BINARY and
SIDESTREAM_TEST_CACHE are as for the scenarios.
"""

import argparse
import asyncio
import concurrent.futures
import json
import pathlib
import resource
import shutil
import socket
import statistics
import struct
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scenarios"))

from harness import Kafka, Proxy  # noqa: E402

TOPIC = b"connections"
MOST_PER_IDLE = 16 * 1024


def request(key, version, body):
    frame = struct.pack(">hhih", key, version, 7, 5) + b"bench" + body
    return struct.pack(">i", len(frame)) + frame


API_VERSIONS = request(18, 0, b"")
METADATA = request(3, 1, struct.pack(">ih", 1, len(TOPIC)) + TOPIC)
PRODUCE_BYTES = 512 * 1024


def produce():
    """A Produce of half a MiB to a topic that does not exist: it passes whole and stores nothing."""
    name = b"no-such-topic"
    body = struct.pack(">hhii", -1, -1, 1000, 1) + struct.pack(">h", len(name)) + name
    return request(0, 3, body + struct.pack(">iii", 1, 0, PRODUCE_BYTES) + bytes(PRODUCE_BYTES))


def answer(connection):
    """Reads one answer."""
    left = struct.unpack(">i", exactly(connection, 4))[0]
    return exactly(connection, left)


def exactly(connection, count):
    read = b""
    while len(read) < count:
        part = connection.recv(count - len(read))
        if not part:
            raise ConnectionError("the proxy closed a connection")
        read += part
    return read


def call(connection, frame):
    connection.sendall(frame)
    return answer(connection)


class Memory:
    """The resident memory of a process, each measurement against the one before."""

    def __init__(self, pid):
        self.status = pathlib.Path(f"/proc/{pid}/status")

    def now(self):
        line = next(line for line in self.status.read_text().splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def settled(self):
        """The smallest of several: a connection counts as idle after a second, and pages are given back later still."""
        seen = []
        for _ in range(20):
            seen.append(self.now())
            time.sleep(0.2)
        return min(seen)


def call_all(connections, frame):
    """One request on each connection; many at a time, since Kafka takes a while for each new one."""
    with concurrent.futures.ThreadPoolExecutor(32) as threads:
        list(threads.map(lambda connection: call(connection, frame), connections))


def connect(port, count):
    connections = []
    for _ in range(count):
        connections.append(socket.create_connection(("127.0.0.1", port), timeout=60))
    return connections


def close(connections):
    for connection in connections:
        connection.close()


def cost_of_idle(proxy, count):
    """Bytes of the proxy for each connection: after the handshake, after a first request, after a large one."""
    memory = Memory(proxy.process.pid)
    close(warm_up(proxy))
    figures = {}
    before = memory.settled()
    connections = connect(proxy.port, count)
    wait_for_connections(proxy, count)
    figures["connected"] = (memory.settled() - before) // count
    call_all(connections, API_VERSIONS)
    figures["after ApiVersions"] = (memory.settled() - before) // count
    call_all(connections, METADATA)
    figures["after Metadata"] = (memory.settled() - before) // count
    before_large = memory.settled()
    large = connect_mapped(proxy, max(1, count // 10))
    for connection in large:
        call(connection, produce())
    figures["of its own, after a large Produce"] = (memory.settled() - before_large) // len(large)
    connections += large
    close(connections)
    wait_for_connections(proxy, 0)
    figures["left behind when all are closed"] = (memory.settled() - before) // count
    return figures


def connect_mapped(proxy, count):
    """Connections to the port that stands for the only broker."""
    return connect(proxy.settings["listener.mapped.port.base"] + 1, count)


def warm_up(proxy):
    """What is allocated once, is allocated before anything is measured."""
    connections = connect(proxy.port, 50)
    for connection in connections:
        call(connection, API_VERSIONS)
        call(connection, METADATA)
    return connections


def wait_for_connections(proxy, count):
    for _ in range(600):
        if proxy.metrics()["sidestream_client_connections"] == count:
            return
        time.sleep(0.1)
    raise TimeoutError(f"{count} connections")


async def worker(port, until, times, number, count):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    # Spread over the second, so that they do not come all at once.
    await asyncio.sleep(number / count)
    while time.monotonic() < until:
        begun = time.perf_counter()
        writer.write(METADATA)
        length = struct.unpack(">i", await reader.readexactly(4))[0]
        await reader.readexactly(length)
        times.append(time.perf_counter() - begun)
        await asyncio.sleep(max(0, 1 - (time.perf_counter() - begun)))
    writer.close()


async def work(port, active, seconds):
    times = []
    until = time.monotonic() + seconds + 1
    await asyncio.gather(*(worker(port, until, times, n, active) for n in range(active)))
    # The first of each pays for the upstream connection.
    return sorted(times[active:])


def percentile(times, part):
    return times[min(len(times) - 1, int(len(times) * part))] * 1000


def idle_request(options):
    """What an idle connection has asked for once: a Metadata opens a connection to Kafka as well."""
    files = 2 * (options.idle + options.active) + 200
    return METADATA if files <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] else API_VERSIONS


def interleaved(proxy, options):
    """The percentiles of each round without and with idle connections, which take turns."""
    rounds = {"undisturbed": [], "disturbed": []}
    for _ in range(options.rounds):
        for kind, seen in rounds.items():
            idle = connect(proxy.port, options.idle) if kind == "disturbed" else []
            call_all(idle, idle_request(options))
            times = asyncio.run(work(proxy.port, options.active, options.seconds))
            seen.append((percentile(times, 0.5), percentile(times, 0.99)))
            close(idle)
            wait_for_connections(proxy, 0)
    return rounds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=900)
    parser.add_argument("--active", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    store = pathlib.Path(tempfile.mkdtemp(prefix="sidestream-store-"))
    kafka = Kafka(1)
    proxy = None
    try:
        proxy = Proxy(kafka, store, settings={"listener.max.connections": 2 * (options.idle + options.active) + 100})
        cost = cost_of_idle(proxy, options.idle)
        if not options.json:
            report_cost(cost, options)
        rounds = interleaved(proxy, options)
    finally:
        if proxy:
            proxy.stop()
        kafka.stop()
        shutil.rmtree(store, ignore_errors=True)
    if options.json:
        print(json.dumps({"bytes_per_connection": cost, "rounds": rounds}))
    else:
        report_rounds(rounds, options)


def report_cost(cost, options):
    print(f"memory of the proxy for each of {options.idle} connections, in bytes (a connection after its first "
          f"Metadata has one to Kafka as well; {MOST_PER_IDLE} are the most for an idle one)")
    for when, bytes_each in cost.items():
        print(f"  {when:<32} {bytes_each:>8}", flush=True)


def report_rounds(rounds, options):
    middle = {kind: [statistics.median(r[i] for r in seen) for i in (0, 1)] for kind, seen in rounds.items()}
    print(f"Metadata of {options.active} active connections, one a second each: median of {options.rounds} rounds")
    for kind, (p50, p99) in middle.items():
        spread = ", ".join(f"{r[1]:.1f}" for r in rounds[kind])
        print(f"  {kind:<12} p50 {p50:.2f} ms, p99 {p99:.2f} ms (each round: {spread})")
    print(f"  disturbed / undisturbed: p99 {middle['disturbed'][1] / middle['undisturbed'][1]:.2f}")


if __name__ == "__main__":
    main()
