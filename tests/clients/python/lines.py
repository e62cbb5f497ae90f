"""What the Python drivers share: commands as JSON lines on stdin, answers as JSON lines on stdout.

A command names an operation, which is a method of the client; what a client has no method for is answered as missing.
Each command runs in a thread of its own, because some wait for what others bring about.
"""

import asyncio
import concurrent.futures
import inspect
import json
import queue
import sys
import threading
import time

FILL = "x"


def serve(client, code_of):
    """Answers commands until stdin ends. `code_of` finds Kafka's error code in an exception, if there is one."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    writing = threading.Lock()

    def answer(command):
        try:
            operation = getattr(client, command.pop("op"), None)
            number = command.pop("id")
            if operation is None:
                reply = {"missing": True}
            else:
                result = operation(**command)
                if inspect.isawaitable(result):
                    result = asyncio.run_coroutine_threadsafe(result, loop).result()
                reply = {"result": result}
        except NotImplementedError:
            reply = {"missing": True}
        except Exception as error:
            reply = {"error": {"code": code_of(error), "message": f"{type(error).__name__}: {error}"}}
        with writing:
            print(json.dumps({"id": number, **reply}), flush=True)

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        for line in sys.stdin:
            pool.submit(answer, json.loads(line))


def to_bytes(text):
    """A key or value as commands write it: text, null, or so many bytes of filling."""
    if isinstance(text, dict):
        return (FILL * text["fill"]).encode()
    return None if text is None else text.encode()


def from_bytes(data):
    """The reverse. Long values come back as their length, if nothing but filling is in them."""
    if data is not None and len(data) > 1000 and data == FILL.encode() * len(data):
        return {"fill": len(data)}
    return None if data is None else data.decode()


def record(topic, partition, offset, key, value, headers, timestamp):
    return {
        "topic": topic, "partition": partition, "offset": offset, "key": from_bytes(key), "value": from_bytes(value),
        "headers": [[name, from_bytes(data)] for name, data in headers or []], "timestamp": timestamp,
    }


class Member:
    """A consumer with a thread, which alone calls it: `poll` brings records, other calls wait their turn."""

    def __init__(self, consumer, poll):
        self.consumer = consumer
        self._poll = poll
        self._calls = queue.Queue()
        self._records = []
        self._changed = threading.Condition()
        self._open = True
        self._error = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while self._open:
            try:
                call, future = self._calls.get_nowait()
            except queue.Empty:
                try:
                    records = self._poll(self.consumer)
                except Exception as error:
                    self._error, records = error, []
                if records:
                    with self._changed:
                        self._records.extend(records)
                        self._changed.notify_all()
                continue
            try:
                future.set_result(call(self.consumer))
            except Exception as error:
                future.set_exception(error)

    def call(self, call):
        """Runs a function of the consumer in its thread."""
        future = concurrent.futures.Future()
        self._calls.put((call, future))
        return future.result()

    def forget(self):
        """Drops what was read and not taken."""
        with self._changed:
            self._records.clear()

    def take(self, count, seconds):
        deadline = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: len(self._records) >= count, deadline - time.monotonic())
            taken, self._records = self._records[:count], self._records[count:]
        if self._error and not taken:
            raise self._error
        return {"records": taken}

    def close(self):
        def end(consumer):
            self._open = False
            consumer.close()

        self.call(end)
