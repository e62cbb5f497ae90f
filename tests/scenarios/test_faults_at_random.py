"""One fault after the other, chosen at random, while producers with two proxies to go to keep writing.

SIDESTREAM_FAULTS says how many; SIDESTREAM_SEED repeats a run's choices.
"""

import os
import random
import signal
import time

from workload import Load, new_topic, read_and_verify, running_proxies

FAULTS = int(os.environ.get("SIDESTREAM_FAULTS", 8))
SEED = int(os.environ.get("SIDESTREAM_SEED", time.time_ns() % 1_000_000))
PARTITIONS = 4


def kill(proxy, _):
    proxy.kill()
    proxy.start()


def terminate(proxy, _):
    assert proxy.terminate() == 0
    proxy.start()


def forget(proxy, _):
    proxy.kill()
    proxy.metadata_store.unlink(missing_ok=True)
    proxy.start()


def freeze(proxy, chosen):
    proxy.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(chosen.choice([1, 4, 12]))
    finally:
        proxy.process.send_signal(signal.SIGCONT)


def fail_uploads(proxy, chosen):
    errors = 'sidestream_object_store_retries_total{operation="put"}'
    before = proxy.metrics()[errors]
    fault = chosen.choice(["error-before", "error-after", "unavailable", {"delay-ms": 3000}])
    proxy.set_store_faults([{"operation": "put", "fault": fault, "times": chosen.choice([3, 30])}])
    # All producers may be at the other proxy; then nothing is uploaded here, and nothing fails.
    deadline = time.monotonic() + 5
    while proxy.metrics()[errors] == before and time.monotonic() < deadline:
        time.sleep(0.1)
    proxy.set_store_faults([])


def test_random_faults_lose_and_double_nothing(kafka3):
    print(f"SIDESTREAM_SEED={SEED}")
    chosen = random.Random(SEED)
    with running_proxies(kafka3, zones=("zone-a", "zone-b")) as proxies:
        topic = new_topic(proxies[0].bootstrap, PARTITIONS)
        impatient = {"socket.timeout.ms": 5000, "request.timeout.ms": 5000}
        orders = [proxies, proxies[::-1]]
        loads = [Load(",".join(p.bootstrap for p in orders[sender % 2]), topic, PARTITIONS, sender=sender, rate=500,
                      settings=impatient) for sender in range(4)]
        try:
            for load in loads:
                load.wait_for_acknowledged(500)
            for number in range(FAULTS):
                proxy = chosen.choice(proxies)
                fault = chosen.choice([kill, terminate, forget, freeze, fail_uploads])
                print(f"{number}: {fault.__name__} {proxy.settings['proxy.zone']}")
                fault(proxy, chosen)
                for load in loads:
                    load.wait_for_acknowledged(200)
        finally:
            for load in loads:
                load.stop_sending()
        for load in loads:
            load.finish()
        first, second = (read_and_verify(proxy.bootstrap, topic, loads) for proxy in proxies)
        assert first == second
        assert first.records == sum(load.count for load in loads)
