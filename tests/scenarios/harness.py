"""Starts what a scenario needs on free loopback ports, and stops it: Kafka clusters, proxies, Kafka's own tools.

Every process is ended by its own id. Nothing here asserts anything; scenarios do.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = pathlib.Path(os.environ.get("SIDESTREAM_TEST_CACHE", ROOT / "target" / "test-cache"))
BINARY = pathlib.Path(os.environ.get("SIDESTREAM_BINARY", ROOT / "target" / "release" / "sidestream"))
CLUSTER = ROOT / "tests" / "kafka" / "cluster"


def wait_for(condition, seconds, what):
    """Polls until the condition holds; says what was waited for when it does not."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(0.05)


def port_range():
    """Ports of this worker alone, below those that the system gives to outgoing connections."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = 10_000 + worker % 4 * 5_500
    return first, first + 5_500


def free_port_block(count):
    """The first of `count` neighbouring ports that are free now."""
    first, end = port_range()
    bases = range(first, end - count, 125)
    start = os.getpid() % len(bases)
    for base in [*bases[start:], *bases[:start]]:
        with contextlib.ExitStack() as stack:
            try:
                for port in range(base, base + count):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
                return base
            except OSError:
                continue
    raise RuntimeError("no free ports")


class Kafka:
    """A real cluster of one or three brokers. `tests/kafka/cluster` does the work.

    `extra` is a text of broker properties, or a function that makes one for the first of the cluster's ports.
    """

    def __init__(self, brokers, extra="", jvm=""):
        self.brokers = brokers
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="sidestream-kafka-"))
        self.base_port = free_port_block(110)
        self.environment = {**os.environ, "BASE_PORT": str(self.base_port), "KAFKA_LIBS": str(CACHE / "kafka-libs"),
                            "KAFKA_JVM": jvm}
        if extra:
            file = self.directory / "extra.properties"
            file.write_text(extra(self.base_port) if callable(extra) else extra)
            self.environment["KAFKA_EXTRA"] = str(file)
        try:
            self._run("start", str(self.directory), str(brokers))
        except BaseException:  # also when somebody interrupts
            # Nobody holds this object yet, so nobody else can end what was started.
            self.stop()
            raise

    def _run(self, *arguments):
        subprocess.run([str(CLUSTER), *arguments], env=self.environment, check=True, timeout=600,
                       stdout=subprocess.DEVNULL)

    @property
    def bootstrap(self):
        return ",".join(f"127.0.0.1:{self.base_port + i}" for i in range(self.brokers))

    def kill_broker(self, broker):
        self._run("kill", str(self.directory), str(broker))

    def terminate_broker(self, broker):
        """SIGTERM: the broker hands its leaderships over and ends."""
        self._run("term", str(self.directory), str(broker))

    def start_broker(self, broker):
        self._run("up", str(self.directory), str(broker))

    def stop(self):
        self._run("stop", str(self.directory))
        shutil.rmtree(self.directory, ignore_errors=True)


def kafka_tool(java_class, *arguments, input=None, timeout=120):
    """Runs one of Kafka's own command line tools; returns its output, standard error included."""
    environment = {**os.environ, "KAFKA_LIBS": str(CACHE / "kafka-libs")}
    done = subprocess.run([str(CLUSTER), "tool", java_class, *arguments], env=environment, input=input, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError(f"{java_class} exited with {done.returncode}:\n{done.stdout}")
    return done.stdout


class Proxy:
    """A sidestream process. Restarts keep its directory and its ports."""

    def __init__(self, kafka, store, proxy_id=1, zone="zone-a", settings=None, directory=None,
                 environment=None):
        self.environment = {**os.environ, **(environment or {})}
        self.directory = pathlib.Path(directory or tempfile.mkdtemp(prefix=f"sidestream-proxy-{proxy_id}-"))
        ports = free_port_block(110)
        self.port, self.admin_port = ports, ports + 1
        self.store = pathlib.Path(store)
        self.settings = {
            "proxy.id": proxy_id,
            "proxy.zone": zone,
            "listener.advertised.host": "127.0.0.1",
            "listener.bootstrap.port": self.port,
            "listener.mapped.port.base": ports + 100,
            "upstream.bootstrap.servers": kafka.bootstrap.split(","),
            "metadata.directory": str(self.directory / "metadata"),
            "metadata.replication.factor": min(3, kafka.brokers),
            "store.url": f"file://{store}",
            "store.fault.file": str(self.directory / "faults.json"),
            "diskless.topics": ["diskless-.*"],
            "admin.bind": f"127.0.0.1:{self.admin_port}",
            **(settings or {}),
        }
        self.log = self.directory / "sidestream.log"
        self.process = None
        try:
            self.start()
        except BaseException:  # also when somebody interrupts
            # Nobody holds this object yet, so nobody else can end what was started. The log is in the error.
            self.stop()
            raise

    @property
    def bootstrap(self):
        return f"127.0.0.1:{self.port}"

    @property
    def metadata_store(self):
        return self.directory / "metadata" / "metadata.redb"

    def start(self, wait=True):
        config = self.directory / "sidestream.toml"
        config.write_text("\n".join(f"{key} = {json.dumps(value)}" for key, value in self.settings.items()) + "\n")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([str(BINARY), "run", "--config", str(config)], stdout=log, stderr=log,
                                            env=self.environment)
        if wait:
            self.wait_ready()

    def wait_ready(self, seconds=60):
        try:
            wait_for(self._is_ready_or_dead, seconds, "the proxy to be ready")
        except TimeoutError as error:
            raise RuntimeError(f"{error}:\n{self.log.read_text()[-4000:]}") from error
        if self.process.poll() is not None:
            raise RuntimeError(f"the proxy exited with {self.process.returncode}:\n{self.log.read_text()[-4000:]}")

    def _is_ready_or_dead(self):
        if self.process.poll() is not None:
            return True
        with contextlib.suppress(OSError):
            return self.get("/ready") is not None
        return False

    def get(self, path):
        """The body of an admin path."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}{path}", timeout=5) as answer:
            return answer.read().decode()

    def metrics(self):
        """All samples of /metrics, by name with labels."""
        lines = [line for line in self.get("/metrics").splitlines() if line and not line.startswith("#")]
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}

    def set_store_faults(self, rules):
        """Makes the object store fail as the rules say; an empty list heals it."""
        temporary = self.directory / "faults.tmp"
        temporary.write_text(json.dumps(rules))
        temporary.rename(self.directory / "faults.json")

    def kill(self):
        """kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=30)

    def terminate(self, seconds=60):
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=seconds)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
