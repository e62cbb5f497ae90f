"""The record of a run: one JSON line for each invocation and for each completion, on one monotonic clock."""

import itertools
import json
import struct
import threading
import time
import zlib

HEAD = struct.Struct(">QI")
FILLER = b" ".join(b"%x" % (number * 2654435761 % (1 << 32)) for number in range(2000))


def payload(value):
    """The one payload that a value can have: the value, a checksum, and a filler that follows from the value."""
    start = value * 61 % (len(FILLER) // 2)
    filler = FILLER[start:start + value * 7919 % 900]
    return HEAD.pack(value, zlib.crc32(filler)) + filler


class Recorder:
    """Writes events of many threads to one file. What is judged later is the file alone."""

    def __init__(self, path):
        self.path = path
        self._file = open(path, "w", encoding="utf-8")
        self._lock = threading.Lock()
        self.corrupt = []

    def write(self, **event):
        line = json.dumps(event, separators=(",", ":")) + "\n"
        with self._lock:
            if not self._file.closed:
                self._file.write(line)

    def process(self, name, proxy=None):
        return Process(self, name, proxy)

    def records(self, messages):
        """What a poll is written down as. A payload that nobody can have sent is kept for the verdict."""
        found = []
        for message in messages:
            raw = message.value()
            value = HEAD.unpack_from(raw)[0] if len(raw) >= HEAD.size else 0
            if raw != payload(value):
                self.corrupt.append(f"{message.topic()}/{message.partition()} offset {message.offset()}: {raw[:40]!r}")
            found.append([message.offset(), value, zlib.crc32(raw)])
        return found

    def close(self):
        with self._lock:
            self._file.close()


class Process:
    """One client's operations, numbered in the order of their calls."""

    def __init__(self, recorder, name, proxy=None):
        self.recorder, self.name = recorder, name
        self._common = {"process": name, **({"proxy": proxy} if proxy is not None else {})}
        self._numbers = itertools.count(1)

    def invoke(self, f, key=None, at=None, **more):
        op = next(self._numbers)
        self._write(at or time.monotonic_ns(), op, "invoke", f, key, more)
        return op

    def complete(self, op, kind, f, key=None, **more):
        """`kind` is ok, fail (certainly did not happen) or info (nobody knows)."""
        self._write(time.monotonic_ns(), op, kind, f, key, more)

    def _write(self, at, op, kind, f, key, more):
        self.recorder.write(time_ns=at, **self._common, op=op, type=kind, f=f, **({"key": key} if key else {}), **more)

    def note(self, text):
        """An entry of the fault timeline."""
        self.complete(self.invoke("note"), "ok", "note", error=text)
