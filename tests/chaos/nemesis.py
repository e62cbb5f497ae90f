"""What goes wrong, and when: a schedule that follows from the seed alone, and the faults that it is made of.

A period has some faults, of different roles, that hold side by side; then everything is healed. About a quarter of the
periods have none, so that what the faults left behind gets its chance to show. The first period is always the one of
the frozen proxy that wakes after another process has taken its id.
"""

import collections
import contextlib
import random
import signal
import subprocess
import time

from world import described, end, kafka_tool, start_again, wait_until_ended


class Fault:
    """Something that is wrong from `inject` to `heal`. Its choices are made when the schedule is."""

    def __init__(self, chosen, longest_pause):
        self.choose(chosen, longest_pause)

    def choose(self, chosen, longest_pause):
        pass

    def __str__(self):
        return type(self).__name__

    def missing(self, world):
        """Why this cannot be done here, if so."""

    def inject(self, world):
        raise NotImplementedError

    def heal(self, world):
        pass


class OfProxy(Fault):
    def choose(self, chosen, longest_pause):
        self.index = chosen.randrange(3)

    def __str__(self):
        return f"{type(self).__name__} {self.index + 1}"

    def proxy(self, world):
        return world.proxies[self.index]

    def heal(self, world):
        start_again(world, self.proxy(world))


class Kill(OfProxy):
    """kill -9, and started again at once, while the other faults hold."""

    def inject(self, world):
        self.proxy(world).kill()
        self.proxy(world).start(wait=False)


class KillAndStayAway(OfProxy):
    def inject(self, world):
        self.proxy(world).kill()


class KillAndForget(OfProxy):
    """kill -9, and what it knew of the log is gone."""

    def inject(self, world):
        self.proxy(world).kill()
        self.proxy(world).metadata_store.unlink(missing_ok=True)
        self.proxy(world).start(wait=False)


class Freeze(OfProxy):
    """SIGSTOP, then SIGCONT: requests that it had in hand go on where they were."""

    def choose(self, chosen, longest_pause):
        super().choose(chosen, longest_pause)
        self.seconds = chosen.uniform(2, longest_pause)

    def inject(self, world):
        self.proxy(world).process.send_signal(signal.SIGSTOP)
        self.since = time.monotonic()

    def heal(self, world):
        time.sleep(max(0.0, self.seconds - (time.monotonic() - self.since)))
        self.proxy(world).process.send_signal(signal.SIGCONT)
        start_again(world, self.proxy(world))


class FreezeAndTakeOver(OfProxy):
    """A frozen proxy wakes when another process has its id: it must end by itself and say why."""

    count = 0
    successor = None

    def inject(self, world):
        FreezeAndTakeOver.count += 1
        self.proxy(world).process.send_signal(signal.SIGSTOP)
        self.successor = world.successor(self.proxy(world), FreezeAndTakeOver.count)

    def heal(self, world):
        old = self.proxy(world)
        told_before = old.log.stat().st_size
        old.process.send_signal(signal.SIGCONT)
        if self.successor is None:
            return
        code = wait_until_ended(old, 60)
        told = old.log.read_bytes()[told_before:].decode(errors="replace")
        if code == 0 or "another process opened proxy.id" not in told:
            raise AssertionError(f"a proxy whose id was taken over ended with {code} and said: {told[-2000:]}")
        self.successor.terminate()
        end(self.successor)
        start_again(world, old)


class DiskFull(Fault):
    """The file system of proxy 3's metadata has no byte left. A proxy that then stops serving is started again."""

    index = 2

    def missing(self, world):
        if not world.proxies[self.index].metadata_store.parent.is_mount():
            return "a small file system cannot be mounted here (not root)"

    def inject(self, world):
        self.filler = world.proxies[self.index].metadata_store.with_name("filler")
        with contextlib.suppress(OSError), open(self.filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))

    def heal(self, world):
        self.filler.unlink()
        proxy = world.proxies[self.index]
        with contextlib.suppress(RuntimeError):
            if proxy.process.poll() is None:
                proxy.wait_ready(5)
                return
        world.say("proxy 3 does not serve after its disk was full: it is started again")
        world.counts["proxies restarted after a full disk"] += 1
        end(proxy)
        start_again(world, proxy)


class MoveClock(Fault):
    """The wall clock of proxy 2 jumps."""

    def choose(self, chosen, longest_pause):
        self.seconds = chosen.choice([-600, -90, 90, 600])

    def __str__(self):
        return f"MoveClock {self.seconds:+} s"

    def missing(self, world):
        if not world.clock_library():
            return "clock.c cannot be compiled here (no cc)"

    def _set(self, world, seconds):
        clock = world.proxies[1].directory / "clock"
        temporary = clock.with_suffix(".tmp")
        temporary.write_text(f"{seconds:+}\n")
        temporary.rename(clock)

    def inject(self, world):
        self._set(world, self.seconds)

    def heal(self, world):
        self._set(world, 0)


class KillBroker(Fault):
    def choose(self, chosen, longest_pause):
        self.broker = chosen.randint(1, 3)

    def __str__(self):
        return f"KillBroker {self.broker}"

    def inject(self, world):
        world.kafka.kill_broker(self.broker)

    def heal(self, world):
        world.kafka.start_broker(self.broker)


class MoveLeader(Fault):
    """Another broker becomes the leader of the metadata log."""

    def inject(self, world):
        topic = world.proxies[0].settings.get("metadata.topic", "__diskless_metadata")
        replicas = described(world.kafka.bootstrap, topic).topics[topic].partitions[0].replicas
        turned = [*replicas[1:], replicas[0]]
        file = world.directory / "reassignment.json"
        file.write_text('{"version":1,"partitions":[{"topic":"%s","partition":0,"replicas":%s}]}' % (topic, turned))
        # A broker that has just come back may be unknown still, or not in sync: then the leader stays where it is.
        try:
            kafka_tool("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--bootstrap-server",
                       world.kafka.bootstrap, "--reassignment-json-file", str(file), "--execute", timeout=60)
            kafka_tool("org.apache.kafka.tools.LeaderElectionCommand", "--bootstrap-server", world.kafka.bootstrap,
                       "--election-type", "preferred", "--topic", topic, "--partition", "0", timeout=60)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            world.say(f"the leader may have stayed: {str(error)[:200]}")
            world.counts["leader moves that Kafka refused"] += 1


class Store(Fault):
    """Rules of the S3 server."""

    rules = []

    def inject(self, world):
        world.store.set_rules(self.rules)

    def heal(self, world):
        world.store.set_rules([])


class SlowDown(Store):
    def choose(self, chosen, longest_pause):
        self.rules = [{"fault": "slow-down", "probability": chosen.choice([0.2, 0.6, 1.0])}]


class SlowPuts(Store):
    def choose(self, chosen, longest_pause):
        delay = {"median_ms": chosen.choice([300, 1500]), "sigma": 0.8}
        self.rules = [{"operation": "put", "fault": {"delay": delay}}]


class Stuck(Store):
    def choose(self, chosen, longest_pause):
        self.rules = [{"fault": fault, "probability": chosen.choice([0.1, 0.4])}
                      for fault in ("stuck-before", "stuck-after")]


class DoneButNotTold(Store):
    def choose(self, chosen, longest_pause):
        self.rules = [{"operation": "put", "fault": "error-after", "probability": chosen.choice([0.3, 0.8])}]


class BrokenGets(Store):
    rules = [{"operation": "get", "fault": "reset", "probability": 0.3},
             {"operation": "get", "fault": "truncate", "probability": 0.3}]


class StaleLists(Store):
    rules = [{"operation": "list", "fault": {"stale-list": 60_000}}]


class KillStore(Fault):
    def inject(self, world):
        world.store.kill()

    def heal(self, world):
        world.store.start()


#: One fault of a role at a time. A role that is listed twice is as likely again.
ROLES = {
    "proxy": [Kill, Kill, KillAndStayAway, KillAndForget, Freeze, Freeze, FreezeAndTakeOver],
    "metadata log": [KillBroker, MoveLeader],
    "store": [SlowDown, SlowPuts, Stuck, DoneButNotTold, BrokenGets, StaleLists, KillStore],
    "surroundings": [DiskFull, MoveClock],
}


def schedule(seed, seconds, longest_pause):
    """Periods for this time and more, since healing takes time too: the faults of each, and how long they hold."""
    chosen = random.Random(seed)
    first = FreezeAndTakeOver(chosen, longest_pause)
    periods, planned = [([first], 3.0)], 3.0
    while planned < seconds:
        faults = []
        if chosen.random() >= 0.25:
            for role in chosen.sample(list(ROLES), chosen.choice([1, 1, 2, 2, 3])):
                faults.append(chosen.choice(ROLES[role])(chosen, longest_pause))
        if any(isinstance(fault, DiskFull) for fault in faults):
            for fault in faults:
                # Whether proxy 3 gets over its full disk can be told if nothing else ails it.
                if isinstance(fault, OfProxy) and fault.index == DiskFull.index:
                    fault.index = 0
        hold = chosen.uniform(3, longest_pause / 2)
        periods.append((faults, hold))
        planned += hold
    return periods


class Nemesis:
    """Carries a schedule out, and writes down what it does."""

    def __init__(self, world, recorder, periods):
        self.world, self.periods = world, periods
        self.process = recorder.process("nemesis")
        self.injected = collections.Counter()
        self.left_out = {}

    def note(self, text):
        self.world.say(text)
        self.process.note(text)

    def run(self, deadline, check):
        """`check` is called between periods; it raises when going on makes no sense."""
        for faults, hold in self.periods:
            if time.monotonic() > deadline:
                break
            self._period(faults, hold)
            check()

    def _period(self, faults, hold):
        begun = []
        if not faults:
            self.note(f"nothing for {hold:.0f} s")
            self.injected["nothing"] += 1
        try:
            for fault in faults:
                missing = fault.missing(self.world)
                if missing:
                    self.left_out[type(fault).__name__] = missing
                    continue
                self.note(f"inject {fault}")
                begun.append(fault)
                fault.inject(self.world)
                self.injected[type(fault).__name__] += 1
            time.sleep(hold)
        finally:
            # Brokers and the store first: proxies need them to start.
            for fault in sorted(begun, key=lambda fault: isinstance(fault, OfProxy)):
                self.note(f"heal {fault}")
                fault.heal(self.world)
        if begun:
            self.note("healed")
