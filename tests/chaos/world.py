"""What a run is about: three brokers, an S3 server, three proxies in three zones. Started here, and ended by id."""

import collections
import contextlib
import functools
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scenarios"))

from harness import BINARY, CACHE, ROOT, Kafka, Proxy, free_port_block, kafka_tool, wait_for  # noqa: E402, F401
from workload import create_topic, described  # noqa: E402, F401

S3_SERVER = pathlib.Path(os.environ.get(
    "SIDESTREAM_S3_SERVER", ROOT / "target" / "s3_server" / "release" / "sidestream-s3-server"))
KEYS = {"AWS_ACCESS_KEY_ID": "chaos", "AWS_SECRET_ACCESS_KEY": "not-much-of-a-secret"}
TOPICS = {"diskless-chaos-a": 3, "diskless-chaos-b": 2}
TMPFS_BYTES = 64 << 20


class S3Server:
    """The store. Killed and started again it has the same port and the same objects."""

    def __init__(self, directory):
        self.directory = directory
        self.rules = directory / "rules.json"
        self.log = directory / "requests.jsonl"
        self.port = free_port_block(1)
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [str(S3_SERVER), "--port", str(self.port), "--directory", str(self.directory / "objects"),
             "--rules", str(self.rules), "--log", str(self.log)],
            env={**os.environ, **KEYS}, stdout=subprocess.PIPE, text=True)
        if not self.process.stdout.readline():
            raise RuntimeError(f"the S3 server ended with {self.process.wait(10)}")

    def set_rules(self, rules):
        temporary = self.rules.with_suffix(".tmp")
        temporary.write_text(json.dumps(rules))
        temporary.rename(self.rules)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)


class World:
    """Everything that a run starts. `directory` keeps what is looked at when it fails."""

    def __init__(self, directory, say):
        self.directory, self.say = directory, say
        self.counts = collections.Counter()
        self._cleanups = contextlib.ExitStack()
        try:
            self._start()
        except BaseException:  # also when somebody interrupts: nobody holds this object yet
            self.stop()
            raise

    def _start(self):
        self.store = S3Server(self.directory)
        self._cleanups.callback(self.store.kill)
        self.kafka = Kafka(3, jvm="-XX:TieredStopAtLevel=1")
        self._cleanups.callback(self.kafka.stop)
        self.proxies = []
        for number, zone in enumerate(("zone-a", "zone-b", "zone-c"), start=1):
            self.proxies.append(self._proxy(number, zone))
        for topic, partitions in TOPICS.items():
            create_topic(self.proxies[0].bootstrap, topic, partitions, {})
        self.keys = [f"{topic}/{partition}" for topic, count in TOPICS.items() for partition in range(count)]

    def settings(self):
        return {
            "store.url": "s3://sidestream",
            "store.option.aws_endpoint": f"http://127.0.0.1:{self.store.port}",
            "store.option.aws_region": "us-east-1",
            "store.option.aws_virtual_hosted_style_request": "false",
        }

    def _proxy(self, number, zone):
        directory = self.directory / f"proxy-{number}"
        (directory / "metadata").mkdir(parents=True)
        environment = dict(KEYS)
        if number == 2 and self.clock_library():
            environment |= {"LD_PRELOAD": str(self.clock_library()), "CHAOS_CLOCK": str(directory / "clock")}
        if number == 3 and self.mount(directory / "metadata"):
            self._cleanups.callback(self.unmount, directory / "metadata")
        proxy = Proxy(self.kafka, self.directory, proxy_id=number, zone=zone, settings=self.settings(),
                      directory=directory, environment=environment)
        self._cleanups.callback(end, proxy)
        return proxy

    @functools.cache
    def clock_library(self):
        """What moves the clock of a process, made of clock.c; `None` where there is no C compiler."""
        library = self.directory / "clock.so"
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(HERE / "clock.c")]
        with contextlib.suppress(OSError):
            if subprocess.run(command, capture_output=True, timeout=60).returncode == 0:
                return library
        return None

    def mount(self, directory):
        """A small file system of its own, where this may be done. Returns whether."""
        if os.geteuid() != 0:
            return False
        command = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "tmpfs", str(directory)]
        return subprocess.run(command, capture_output=True, timeout=30).returncode == 0

    def unmount(self, directory):
        subprocess.run(["umount", "--lazy", str(directory)], capture_output=True, timeout=30)

    def successor(self, proxy, number):
        """Another process with the same proxy.id, on ports and in a directory of its own."""
        deadline = time.monotonic() + 180
        for attempt in itertools.count(1):
            directory = self.directory / f"successor-{number}-{attempt}"
            directory.mkdir()
            try:
                started = Proxy(self.kafka, self.directory, proxy_id=proxy.settings["proxy.id"],
                                zone=proxy.settings["proxy.zone"], settings=self.settings(), directory=directory,
                                environment=KEYS)
            except RuntimeError as error:
                # What it needs may be away for a moment; whoever supervises a proxy starts it again.
                if time.monotonic() > deadline:
                    raise
                self.say(f"the successor did not start, once more: {str(error)[-300:].strip()}")
                self.counts["starts that failed"] += 1
                time.sleep(1)
            else:
                self._cleanups.callback(end, started)
                return started

    def keep_logs(self):
        """Copies what Kafka has said to where the rest is kept."""
        for log in self.kafka.directory.glob("broker-*.log"):
            shutil.copy(log, self.directory)

    def stop(self):
        self._cleanups.close()


def end(proxy):
    """Ends a proxy that may be frozen, and keeps its directory."""
    if proxy.process and proxy.process.poll() is None:
        proxy.kill()


def start_again(world, proxy, seconds=180):
    """Starts a proxy as a supervisor would: again, if it ends because what it needs is not there yet."""
    deadline = time.monotonic() + seconds
    while True:
        if proxy.process.poll() is not None:
            proxy.start(wait=False)
        try:
            proxy.wait_ready(max(1.0, deadline - time.monotonic()))
            return
        except RuntimeError as error:
            if time.monotonic() > deadline:
                raise
            world.say(f"proxy {proxy.settings['proxy.id']} did not start, once more: {str(error)[-300:].strip()}")
            world.counts["starts that failed"] += 1
            time.sleep(1)


def wait_until_ended(proxy, seconds):
    """The exit code of a process that is to end by itself."""
    wait_for(lambda: proxy.process.poll() is not None, seconds,
             f"proxy {proxy.settings['proxy.id']} (process {proxy.process.pid}) to end by itself")
    return proxy.process.returncode
