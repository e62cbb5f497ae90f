"""The same calls to Kafka and to a proxy, and what differs between their answers.

A side is one way to ask: Kafka itself, or an address of the proxy. Each has topics and groups of its own, set up alike,
whose names end in the side's mark. Answers are normalised before they are compared: names lose the mark, addresses that
stand for the broker become one word, and what is new each time (ids, session numbers) becomes "some".
"""

import contextlib
import json
import re
import subprocess
import tempfile
import time

from harness import wait_for
from matrix_driver import COMMANDS

NO_ID = "A" * 22
# A name and the mark of the side that it belongs to. Diskless names have a prefix besides, and names for one call only
# say which it was.
MARKED = re.compile(r"(?:diskless-)?(?:own-([a-z]+)-[\w-]+|([A-Za-z][\w-]*))\.zz([a-z])\b")
# Values that are new each time, wherever they are.
NEW = {"topicId", "memberId", "leader", "producerId", "finalizedFeaturesEpoch", "sessionId", "transactionStartTimeMs",
       "usableBytes", "totalBytes", "logEndOffset", "lastFetchTimestamp", "lastCaughtUpTimestamp"}
# Lists that Kafka gives in no order, by what tells their elements apart.
KEYED = {"apiKeys": "apiKey", "supportedFeatures": "name", "finalizedFeatures": "name",
         "brokers": ("nodeId", "brokerId"), "configs": "name", "topics": ("name", "topicName", "topic"),
         "groups": "groupId", "transactionStates": "transactionalId", "resultsByPartition": "partitionIndex"}
# Such lists whose elements have no single name.
SORTED = {"configResources", "resources"}
OWNED = ("name", "topicName", "groupId", "transactionalId", "resourceName", "topic")


class Probe:
    """The program that speaks Kafka's protocol."""

    def __init__(self):
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen([*COMMANDS["kafka-clients"][:-1], "WireProbe"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log, text=True)

    def __call__(self, address, api, version, request=None, body=None):
        call = {"address": address, "api": api, "version": version}
        call.update({"request": request} if body is None else {"body": body})
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise RuntimeError(f"the probe ended:\n{self.log.read()[-3000:]}")
        answer = json.loads(line)
        if "failed" in answer:
            raise RuntimeError(f"{api} v{version} at {address}: {answer['failed']}\n{request}")
        return answer

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=20)
        self.log.close()


class Side:
    """One way to ask, and what belongs to it. `version` and `case` are those of the call that is being made."""

    def __init__(self, name, mark, probe, address, leader, prefix=""):
        self.name, self.mark, self.probe, self.prefix = name, mark, probe, prefix
        self.address, self.leader = address, leader
        self.kept = {}
        self.case, self.version = "", 0

    def named(self, what):
        return f"{what}.zz{self.mark}"

    def topic_named(self, what):
        return self.prefix + self.named(what)

    def fresh(self, what):
        """A name for this case and version alone."""
        return f"own-{what}-{re.sub('[^a-z0-9]+', '-', self.case)}-{self.version}"

    def call_leader(self, api, version, request):
        """A call to the leader of this side's partitions that must be answered."""
        return self._answered(self.leader, api, version, request)

    def call(self, api, version, request):
        """A call that must be answered; for setting things up."""
        return self._answered(self.address, api, version, request)

    def _answered(self, address, api, version, request):
        answer = self.probe(address, api, version, request)
        if "response" not in answer:
            raise RuntimeError(f"{self.name}: {api} v{version} was not answered: {answer}")
        return answer["response"]

    def make_topic(self, what, partitions=1):
        """Creates a topic and waits until it has leaders; returns its name."""
        name = self.topic_named(what)
        made = self.call(19, 7, {"topics": [{"name": name, "numPartitions": partitions, "replicationFactor": 1}],
                                 "timeoutMs": 30000})["topics"][0]
        if made["errorCode"]:
            raise RuntimeError(f"{self.name}: {made}")
        self.kept[name] = made["topicId"]

        def led():
            topic = self.call(3, 12, {"topics": [{"name": name}]})["topics"][0]
            return not topic["errorCode"] and not any(p["errorCode"] for p in topic["partitions"])

        def served():
            # A leader may be known before it knows of it.
            asked = [{"partitionIndex": p, "timestamp": -1} for p in range(partitions)]
            listed = self.call_leader(2, 5, {"replicaId": -1, "topics": [{"name": name, "partitions": asked}]})
            return not any(p["errorCode"] for p in listed["topics"][0]["partitions"])

        wait_for(led, 30, f"leaders of {name}")
        wait_for(served, 30, f"service of {name}")
        return name

    def id_of(self, name):
        return self.kept[name]

    def producer(self):
        return self.call(22, 4, {"transactionalId": None, "transactionTimeoutMs": 60000})["producerId"]


def normalised(value, side, addresses, field="", listing=False):
    """An answer of a side, without what may differ. `addresses` says which ports stand for which broker. An answer that
    lists all there is, is cut to what every side has."""
    if isinstance(value, dict):
        out = {key: normalised(inner, side, addresses, key, listing) for key, inner in value.items()}
        if "host" in out and "port" in out:
            out["port"] = addresses.get((out["host"], value["port"]), value["port"])
        if "currentVoters" in out:
            out["highWatermark"] = "some"  # of a log that grows meanwhile
        return out
    if isinstance(value, list):
        kept = (one for one in value if not (listing and _is_of_one_call(one, side)))
        return _keyed([normalised(one, side, addresses, field, listing) for one in kept], field)
    if field in NEW and value not in (0, -1, "", NO_ID, None):
        return "some"
    if isinstance(value, str):
        return MARKED.sub(lambda name: name[1] or name[2], value)
    return value


def _is_of_one_call(value, side):
    """Whether this is a topic, group or transaction that only some sides have."""
    names = [value[key] for key in OWNED if value.get(key)] if isinstance(value, dict) else []
    marks = [MARKED.search(name) for name in names]
    return any((mark[1] or mark[3] != side.mark) if mark else re.match(r"(?!__)\w+-", name)
               for mark, name in zip(marks, names))


def _keyed(elements, field):
    if field in SORTED:
        return sorted(elements, key=json.dumps)
    keys = KEYED.get(field)
    if not keys or not all(isinstance(one, dict) for one in elements):
        return elements
    keys = (keys,) if isinstance(keys, str) else keys
    named = {str(next((one[key] for key in keys if one.get(key) is not None), None)): one for one in elements}
    return named if len(named) == len(elements) else elements


def differences(kafka, ours, path=""):
    """(path, Kafka's value, ours) for each value that differs; None stands for one that is not there."""
    if kafka == ours and type(kafka) is type(ours):
        return
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for key in sorted(kafka.keys() | ours.keys()):
            inner = f"{path}.{key}" if path else key
            yield from differences(kafka.get(key), ours.get(key), inner)
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for i, (one, other) in enumerate(zip(kafka, ours)):
            yield from differences(one, other, f"{path}.{i}" if path else str(i))
    else:
        yield path, kafka, ours


@contextlib.contextmanager
def running_probe():
    probe = Probe()
    try:
        yield probe
    finally:
        probe.stop()


def now():
    return int(time.time() * 1000)
