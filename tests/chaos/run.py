#!/usr/bin/env python3
"""Chaos on real processes: three brokers, an S3 server and three proxies in three zones, under load, while a seeded
schedule of faults breaks one thing after the other. Everything that clients are told is written down and judged.

    python tests/chaos/run.py --minutes 2 --seed 7

The Python of the test cache has the clients that this needs (tests/run makes it). Exit code 0: nothing was lost,
doubled, moved or made up, and everybody got answers once all was healed. A run that fails keeps its histories, the logs
of all processes and the S3 server's request log, and prints where.
"""

import argparse
import collections
import contextlib
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import check
from history import Recorder
from java_pair import JavaPair
from load import FLAVOURS, Follower, Jumper, Poller, Sender, read_all, wait_for_one_end
from nemesis import Nemesis, schedule
from world import BINARY, World

#: After everything is healed, all answers that are owed must come within this time.
DRAIN_SECONDS = 180
READ_SECONDS = 300


class Run:
    def __init__(self, arguments, directory):
        self.arguments, self.directory = arguments, directory
        self.begun = time.monotonic()
        self.wrong = []
        self.recorder = Recorder(directory / "history.jsonl")

    def say(self, text):
        print(f"{time.monotonic() - self.begun:7.1f} s  {text}", flush=True)

    def execute(self):
        a = self.arguments
        periods = schedule(a.seed, a.minutes * 60, a.longest_pause)
        with contextlib.ExitStack() as stack:
            world = World(self.directory, self.say)
            stack.callback(world.stop)
            stack.callback(world.keep_logs)
            self.say("brokers, store and proxies serve")
            self.start_clients(world, stack)
            nemesis = Nemesis(world, self.recorder, periods)
            try:
                time.sleep(3)
                nemesis.run(time.monotonic() + a.minutes * 60, self.check_clients)
                self.finish_clients()
                self.read_to_the_end(world)
                self.record_digests(world)
            finally:
                self.stop_clients()
                self.recorder.close()
        self.judge()
        self.tell(nemesis, world)

    def start_clients(self, world, stack):
        a, proxies = self.arguments, world.proxies
        orders = [proxies[i:] + proxies[:i] for i in range(3)]
        self.senders = [Sender(self.recorder, f"producer-{i + 1}", world.keys, a.seed, orders[i % 3],
                               a.rate / (len(FLAVOURS) + 1), flavour) for i, flavour in enumerate(FLAVOURS)]
        self.followers = [Follower(self.recorder, f"follower-{i + 1}", world.keys, a.seed, order,
                                   order[0].settings["proxy.id"]) for i, order in enumerate(orders)]
        self.jumper = Jumper(self.recorder, "jumper", world.keys, a.seed, proxies)
        self.pollers = [Poller(self.recorder, f"poller-{i + 1}", world.keys, a.seed, proxy)
                        for i, proxy in enumerate(proxies)]
        bootstrap = ",".join(proxy.bootstrap for proxy in orders[2])
        self.java = JavaPair(self.directory, bootstrap, world.keys, max(1, a.rate // (len(FLAVOURS) + 1)), 1 << 16)
        stack.callback(self.java.stop)
        for client in self.clients():
            client.start()

    def clients(self):
        return [*self.senders, *self.followers, self.jumper, *self.pollers]

    def check_clients(self):
        for client in self.clients():
            if client.failure:
                raise RuntimeError(f"{client.name} ended: {client.failure}")
        self.java.check()

    def stop_clients(self):
        for client in self.clients():
            client.stopping.set()
        for client in self.clients():
            client.join(60)

    def finish_clients(self):
        """Nothing more is sent; everything that was sent is answered."""
        self.say("all is healed: producers take the answers that they are owed")
        for sender in self.senders:
            sender.stopping.set()
        begun = time.monotonic()
        for sender in self.senders:
            sender.join(60)
            left = sender.drain(max(1.0, DRAIN_SECONDS - (time.monotonic() - begun)))
            if left:
                self.wrong.append(f"{sender.name}: {left} records had no answer {DRAIN_SECONDS} s after all was healed")
        told = self.java.finish(max(1.0, DRAIN_SECONDS - (time.monotonic() - begun)))
        self.wrong += [told] if told else []
        self.drained_in = time.monotonic() - begun

    def read_to_the_end(self, world):
        self.stop_clients()
        self.check_clients_of_python()
        self.say("every partition is read to its end through every proxy")
        try:
            wait_for_one_end(world.proxies, world.keys, 60)
        except Exception as error:
            self.wrong.append(f"the ends before the closing read: {type(error).__name__}: {error}")
        for proxy in world.proxies:
            for key in world.keys:
                try:
                    read_all(self.recorder, proxy, key, READ_SECONDS)
                except Exception as error:
                    self.wrong.append(f"proxy {proxy.settings['proxy.id']}, {key}: {type(error).__name__}: {error}")

    def check_clients_of_python(self):
        self.wrong += [f"{client.name} ended: {client.failure}" for client in self.clients() if client.failure]

    def record_digests(self, world):
        """State digests, once a proxy's `/state` has them."""
        for proxy in world.proxies:
            number = proxy.settings["proxy.id"]
            with contextlib.suppress(OSError, ValueError, KeyError):
                state = json.loads(proxy.get("/state"))
                process = self.recorder.process(f"digest-{number}", number)
                process.complete(process.invoke("digest"), "ok", "digest", position=state["position"],
                                 digest=state["digest"])

    def judge(self):
        self.events = check.read_events(sorted(self.directory.glob("history*.jsonl")))
        self.history = check.History(self.events)
        self.wrong += check.judge(self.history)
        self.wrong += [f"a payload that nobody sent: {what}" for what in self.recorder.corrupt]
        # The proxy's own checker, where this binary has one.
        histories = sorted(str(path) for path in self.directory.glob("history*.jsonl"))
        if subprocess.run([str(BINARY), "verify", "--help"], capture_output=True, timeout=60).returncode == 0:
            done = subprocess.run([str(BINARY), "verify", *histories], capture_output=True, text=True, timeout=600)
            print(done.stdout)
            if done.returncode:
                self.wrong.append(f"sidestream verify ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-500:]}")

    def tell(self, nemesis, world):
        sends = collections.Counter(send[2] for send in self.history.sends.values())
        lines = {"seed": self.arguments.seed, "seconds": f"{time.monotonic() - self.begun:.0f}",
                 "acknowledged": sends["ok"], "of unknown fate": sends["info"], "certainly not sent": sends["fail"],
                 "followers read": sum(f.records for f in self.followers), "jumps": self.jumper.jumps,
                 "ends asked for": sum(p.answers for p in self.pollers),
                 "drained in": f"{self.drained_in:.1f} s", **world.counts}
        rows = [("run", lines), ("injected", dict(sorted(nemesis.injected.items()))), ("left out", nemesis.left_out),
                ("longest time without an acknowledgement", self.longest_silences()),
                ("errors that clients were told", self.error_mix())]
        for title, row in rows:
            if row:
                print(f"\n{title}")
                for name, value in row.items():
                    print(f"  {name:<40} {value}")
        print(f"\n{len(self.wrong)} thing(s) wrong" if self.wrong else "\nnothing lost, doubled, moved or made up")
        for what in self.wrong[:40]:
            print(f"  {what}")

    def longest_silences(self):
        told = collections.defaultdict(list)
        for (key, _), (process, _, kind, _, at) in self.history.sends.items():
            if kind == "ok":
                told[key].append(at)
                told[process].append(at)
        gap = lambda times: max((b - a for a, b in zip(times, times[1:])), default=0) / 1e9  # noqa: E731
        return {key: f"{gap(sorted(times)):.1f} s" for key, times in sorted(told.items())}

    def error_mix(self):
        return dict(collections.Counter(f"{e['f']}: {e['error']}" for e in self.events
                                        if e["type"] in ("fail", "info") and "error" in e).most_common(20))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--rate", type=int, default=400, help="records a second of all producers together")
    parser.add_argument("--longest-pause", type=float, default=20, help="seconds that a proxy may be frozen")
    parser.add_argument("--keep", action="store_true", help="keep the directory of a run that succeeds, too")
    arguments = parser.parse_args()
    # Whoever ends this gets everything ended that it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = pathlib.Path(tempfile.mkdtemp(prefix=f"sidestream-chaos-{arguments.seed}-"))
    print(f"seed {arguments.seed}, {arguments.minutes:g} minutes, in {directory}", flush=True)
    run = Run(arguments, directory)
    try:
        run.execute()
    except BaseException:
        print(f"the run broke off; what there is of it is in {directory}", flush=True)
        raise
    if run.wrong:
        print(f"histories and logs are in {directory}")
        return 1
    if not arguments.keep:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
