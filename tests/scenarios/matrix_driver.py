"""Drivers: one process for each client library, which does what it is told, a JSON line a command."""

import concurrent.futures
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading

from harness import CACHE, ROOT

DRIVERS = ROOT / "tests" / "clients"
NODE_NAMES = {"x86_64": "x64", "aarch64": "arm64"}
LIBS = CACHE / "kafka-libs"
NODE = str(CACHE / "node" / "node_modules" / f"node-linux-{NODE_NAMES[platform.machine()]}" / "bin" / "node")
JVM = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]

# How each is started; the address to connect to comes behind. tests/run has fetched and built what they need.
COMMANDS = {
    "kafka-clients": ["java", *JVM, "-cp", f"{CACHE}/java:{LIBS}/*",
                      f"-Dlog4j2.configurationFile={ROOT}/tests/kafka/log4j2.properties", "Driver"],
    "confluent-kafka": [sys.executable, str(DRIVERS / "python" / "confluent.py")],
    "kafka-python": [sys.executable, str(DRIVERS / "python" / "kafka_python.py")],
    "aiokafka": [sys.executable, str(DRIVERS / "python" / "aio.py")],
    "franz-go": [str(CACHE / "go" / "clients"), "franz-go"],
    "sarama": [str(CACHE / "go" / "clients"), "sarama"],
    "kafka-go": [str(CACHE / "go" / "clients"), "kafka-go"],
    "kafkajs": [NODE, str(DRIVERS / "node" / "kafkajs.mjs"), str(CACHE / "node")],
    "platformatic": [NODE, str(DRIVERS / "node" / "platformatic.mjs"), str(CACHE / "node")],
}


# How long an answer may take, beside the time that a command itself gives.
ANSWER_SECONDS = 75


class Missing(Exception):
    """The client has no call for this."""


class Refused(Exception):
    """The client reported an error; `code` is Kafka's, where the client tells it."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


class Driver:
    """One client in a process of its own. Commands may be given from several threads."""

    def __init__(self, client, bootstrap):
        self.client = client
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        self._numbers = itertools.count(1)
        self._waiting = {}
        self._writing = threading.Lock()
        self.process = subprocess.Popen([*COMMANDS[client], bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            try:
                reply = json.loads(line)
            except ValueError:
                break  # not an answer: the driver is broken, and nothing else that it says can be trusted
            self._waiting.pop(reply["id"]).set_result(reply)
        for future in list(self._waiting.values()):
            future.set_exception(RuntimeError(f"the driver of {self.client} ended:\n{self.log_tail()}"))

    def log_tail(self):
        self.log.seek(0)
        return self.log.read()[-3000:]

    def __call__(self, op, /, seconds=0, **arguments):
        """Gives a command and returns its result."""
        number, future = next(self._numbers), concurrent.futures.Future()
        self._waiting[number] = future
        if op == "take":
            arguments["seconds"] = seconds
        with self._writing:
            self.process.stdin.write(json.dumps({"id": number, "op": op, **arguments}) + "\n")
            self.process.stdin.flush()
        try:
            reply = future.result(seconds + ANSWER_SECONDS)
        except concurrent.futures.TimeoutError:
            raise TimeoutError(f"{self.client} did not answer {op} {arguments} in {seconds + ANSWER_SECONDS} s") from None
        if "missing" in reply:
            raise Missing(op)
        if "error" in reply:
            raise Refused(f"{op}: {reply['error']['message']}", reply["error"].get("code"))
        return reply.get("result") or {}

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=10)
        self._reader.join(timeout=5)
        self.log.close()
