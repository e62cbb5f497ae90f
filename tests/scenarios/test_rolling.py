"""Brokers and proxies are restarted one after another, under load.

No client may be told of an error that its library does not repeat by itself, and every record is read once, in order.
"""

import contextlib
import itertools
import subprocess
import tempfile
import threading
import time

import pytest

from conftest import QUICK
from harness import CACHE, ROOT, Kafka
from matrix_driver import JVM
from members import PARTITIONS, reading
from workload import Load, new_topic, read_and_verify, read_values, running_proxies, wait_until_healthy

# Records a second of each producer: requests are always under way, and the machine has time for the restarts.
RATE = 200


@pytest.fixture(scope="module")
def kafka():
    """A cluster of three brokers of its own: a restart that fails must not fail other scenarios."""
    cluster = Kafka(3, jvm=QUICK)
    yield cluster
    cluster.stop()


class JavaLoad:
    """Kafka's console producer, idempotent with five requests in flight. Its records are the numbers from 0, in the
    order of which the client spreads them over the partitions."""

    SETTINGS = ["linger.ms=5", "batch.size=1000", "request.timeout.ms=30000", "retries=2147483647"]

    def __init__(self, bootstrap, topic, rate=RATE):
        self.topic, self.rate, self.sent = topic, rate, 0
        self._stopping = threading.Event()
        self._log = tempfile.TemporaryFile("w+")
        settings = [word for setting in self.SETTINGS for word in ["--command-property", setting]]
        self._process = subprocess.Popen(
            ["java", *JVM, "-cp", f"{CACHE}/kafka-libs/*",
             f"-Dlog4j2.configurationFile={ROOT}/tests/kafka/log4j2.properties",
             "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", bootstrap, "--topic", topic, *settings],
            stdin=subprocess.PIPE, stdout=self._log, stderr=self._log)
        self._thread = threading.Thread(target=self._feed, name=f"java load of {topic}", daemon=True)
        self._thread.start()

    def _feed(self):
        begun = time.monotonic()
        with contextlib.suppress(BrokenPipeError):
            while not self._stopping.is_set():
                self._process.stdin.write(f"{self.sent}\n".encode())
                self._process.stdin.flush()
                self.sent += 1
                self._stopping.wait(max(0, self.sent / self.rate - (time.monotonic() - begun)))

    def check(self):
        assert self._process.poll() is None, f"the producer of {self.topic} ended: {self._told()}"

    def _told(self):
        self._log.seek(0)
        return self._log.read()[-3000:]

    def finish(self, seconds=60):
        """The producer sends what it has and ends by itself, with nothing to complain of."""
        self._stopping.set()
        self._thread.join(seconds)
        self._process.stdin.close()
        code = self._process.wait(seconds)
        told = self._told()
        # What the library repeats by itself is a warning in its log.
        assert code == 0 and "] ERROR " not in told, told

    def end(self):
        self._stopping.set()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)
        self._log.close()

    def verify(self, values):
        """Each number is there once, and in each partition they rise."""
        numbers = [[int(value) for value in one] for one in values]
        assert all(lower < higher for one in numbers for lower, higher in itertools.pairwise(one))
        assert sorted(number for one in numbers for number in one) == list(range(self.sent))


def run_under_load(bootstrap, roll):
    """Both producers on topics of both kinds, and a group of two members that reads them all, while `roll` happens.

    `roll` is given a function that waits until all of these have gone on.
    """
    native_topics, java_topics = ([new_topic(bootstrap, PARTITIONS, diskless) for diskless in (False, True)]
                                  for _ in range(2))
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(reading(native_topics + java_topics))
        for _ in range(2):
            group.join(bootstrap)
        group.wait_until_shared()
        loads = [Load(bootstrap, topic, PARTITIONS, rate=RATE) for topic in native_topics]
        for load in loads:
            stack.callback(load.stop_sending)
        java = [JavaLoad(bootstrap, topic) for topic in java_topics]
        for load in java:
            stack.callback(load.end)

        def go_on():
            for topic in native_topics + java_topics:
                for load in [*loads, *java]:
                    load.check()
                group.wait_for_more(topic, RATE)
            for load in loads:
                load.wait_for_acknowledged(RATE, 120)

        go_on()
        roll(go_on)
        go_on()
        for load in [*loads, *java]:
            load.finish()
        ends = {}
        for load in loads:
            reading_back = read_and_verify(bootstrap, load.topic, [load])
            ends |= {(load.topic, partition): end for partition, end in enumerate(reading_back.ends)}
        for load in java:
            values = read_values(bootstrap, load.topic, PARTITIONS)
            load.verify(values)
            ends |= {(load.topic, partition): len(one) for partition, one in enumerate(values)}
        group.finish(ends)


def test_a_rolling_restart_of_all_brokers_is_not_noticed(kafka):
    with running_proxies(kafka) as [proxy]:
        def roll(go_on):
            for broker in (1, 2, 3):
                kafka.terminate_broker(broker)
                try:
                    go_on()
                finally:
                    kafka.start_broker(broker)
                    wait_until_healthy(kafka)

        run_under_load(proxy.bootstrap, roll)


def test_a_proxy_that_is_drained_and_started_again_beside_another_is_not_noticed(kafka):
    with running_proxies(kafka, zones=("zone-a", "zone-a")) as [first, second]:
        def roll(go_on):
            for _ in range(2):
                assert first.terminate() == 0
                go_on()
                first.start()
                go_on()

        run_under_load(f"{first.bootstrap},{second.bootstrap}", roll)
        log = first.log.read_text()
        assert "did not drain in time" not in log and "were not all answered in time" not in log
