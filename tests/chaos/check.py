"""Judges a history by itself, in a hundred lines: a second opinion that shares no code with anything else.

Every acknowledged value is in its partition once, at the offset that was acknowledged; nothing is there that nobody
sent; each producer's values are in the order of its sends; all proxies and all polls show the same records; an end
that was asked for after an acknowledgement lies behind it; and no offset that exists is said not to.
"""

import collections
import json
import pathlib
import sys


def read_events(paths):
    events = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            events.extend(json.loads(line) for line in file)
    return sorted(events, key=lambda event: event["time_ns"])


class History:
    def __init__(self, events):
        self.sends = {}  # (key, value) -> [process, op, kind, offset, acknowledged at]
        self.unsafe = set()  # processes that promise no idempotence: theirs may come twice, and late
        self.polls, self.bounds, self.refused = [], [], []
        invoked = {}
        for event in events:
            name = (event["process"], event["op"])
            if event["type"] == "invoke":
                invoked[name] = event
                if event["f"] == "send":
                    self.sends[event["key"], event["value"]] = [*name, "info", None, None]
                    if not event.get("idempotent", True):
                        self.unsafe.add(event["process"])
            else:
                self._completed(invoked[name], event)

    def _completed(self, invoke, event):
        kind, f, key = event["type"], event["f"], event.get("key")
        if f == "send":
            send = self.sends[key, invoke["value"]]
            send[2:] = [kind, event.get("offset"), event["time_ns"]]
        elif f == "poll" and kind == "ok":
            self.polls.append((key, invoke, event))
        elif f == "poll" and event.get("error") == "OFFSET_OUT_OF_RANGE":
            self.refused.append((key, invoke, event))
        elif f in ("end", "start") and kind == "ok":
            self.bounds.append((key, f, invoke, event))


def final_logs(history):
    """What each proxy showed at the end, by partition."""
    logs = collections.defaultdict(dict)
    for key, _, event in history.polls:
        if event.get("final"):
            logs[key].setdefault(event.get("proxy"), []).extend(tuple(record) for record in event["records"])
    return logs


def judge(history):
    """All that is wrong, in words."""
    wrong = []
    logs = final_logs(history)
    keys = {key for key, _ in history.sends}
    wrong += [f"{key}: nobody has read it to its end" for key in sorted(keys - set(logs))]
    for key, by_proxy in logs.items():
        log = next(iter(by_proxy.values()))
        for proxy, other in by_proxy.items():
            if other != log:
                at = next((i for i, pair in enumerate(zip(log, other)) if pair[0] != pair[1]), min(len(log), len(other)))
                wrong.append(f"{key}: proxy {proxy} shows another record at place {at}: {log[at:at+1]} {other[at:at+1]}")
        offsets = [record[0] for record in log]
        if offsets != list(range(offsets[0], offsets[0] + len(offsets)) if offsets else []):
            wrong.append(f"{key}: offsets are not dense")
        wrong += judge_sends(history, key, log) + judge_reads(history, key, {record[0]: record for record in log})
    return wrong + judge_ends(history)


def judge_sends(history, key, log):
    wrong, last = [], {}
    places = collections.defaultdict(list)
    for offset, value, *_ in log:
        places[value].append(offset)
        send = history.sends.get((key, value))
        if send is None or send[2] == "fail":
            wrong.append(f"{key}: offset {offset} has value {value}, which nobody sent")
            continue
        process, op = send[:2]
        if op < last.get(process, 0) and process not in history.unsafe:
            wrong.append(f"{key}: value {value} of {process} at offset {offset} is out of order")
        last[process] = max(op, last.get(process, 0))
    for (where, value), (process, _, kind, offset, _) in history.sends.items():
        if where != key:
            continue
        found = places.get(value, [])
        if len(found) > 1 and process not in history.unsafe:
            wrong.append(f"{key}: value {value} of {process} is there {len(found)} times: {found[:5]}")
        if kind == "ok" and offset not in found:
            wrong.append(f"{key}: value {value} of {process} was acknowledged at {offset} and is at {found}")
    return wrong


def judge_reads(history, key, by_offset):
    wrong = []
    for where, _, event in history.polls:
        if where == key and not event.get("final"):
            for record in event["records"]:
                if tuple(record) != by_offset.get(record[0], ())[:len(record)]:
                    wrong.append(f"{key}: {event['process']} read {record}, the end has {by_offset.get(record[0])}")
    end = max(by_offset, default=-1) + 1
    # What existed at the time: below an offset that somebody had been shown before the question was asked.
    known = sorted((event["time_ns"], event["records"][-1][0]) for where, _, event in history.polls
                   if where == key and event["records"])
    for where, invoke, event in history.refused:
        if where == key and invoke.get("from", end) < end:
            if any(at < invoke["time_ns"] and offset >= invoke["from"] for at, offset in known):
                wrong.append(f"{key}: {event['process']} was told that {invoke['from']} does not exist, and it did")
    return wrong


def judge_ends(history):
    """An end must lie behind all that was acknowledged before it was asked for."""
    wrong = []
    moments = [(send[4], 0, key, send[3]) for (key, _), send in history.sends.items()
               if send[2] == "ok" and send[3] is not None]
    moments += [(invoke["time_ns"], 1, key, (event["offset"], event["process"]))
                for key, f, invoke, event in history.bounds if f == "end"]
    acknowledged = collections.Counter()
    for _, is_end, key, what in sorted(moments, key=lambda moment: moment[:2]):
        if not is_end:
            acknowledged[key] = max(acknowledged[key], what + 1)
        elif what[0] < acknowledged[key]:
            wrong.append(f"{key}: {what[1]} was told that it ends at {what[0]}, after {acknowledged[key]} was known")
    return wrong


def main(directory):
    wrong = judge(History(read_events(sorted(pathlib.Path(directory).glob("history*.jsonl")))))
    print("\n".join(wrong[:50]) or "nothing wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
