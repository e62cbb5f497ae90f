"""What may break does break under load, and afterwards every acknowledged record is there: once, in order, unchanged.

The producers live through it all: no scenario makes a new one, and none of their records may be given up.
"""

import contextlib
import itertools
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import Proxy, kafka_tool, wait_for
from workload import Load, described, new_topic, read_and_verify, read_values, running_proxies, wait_until_healthy

PARTITIONS = 4
OUTAGE_SECONDS = 20


@contextlib.contextmanager
def diskless_load(proxy, bootstrap=None, settings=None):
    """A diskless topic and a producer that is seen to make progress, before and after what happens in between."""
    topic = new_topic(proxy.bootstrap, PARTITIONS)
    load = Load(bootstrap or proxy.bootstrap, topic, PARTITIONS, settings=settings)
    try:
        load.wait_for_acknowledged(2000)
        yield load
        load.wait_for_acknowledged(2000)
    finally:
        load.stop_sending()
    load.finish()


def test_a_killed_proxy_has_lost_and_doubled_nothing(kafka3):
    with running_proxies(kafka3) as [proxy]:
        with diskless_load(proxy) as load:
            for _ in range(3):
                proxy.kill()
                proxy.start()
                load.wait_for_acknowledged(1000)
        assert read_and_verify(proxy.bootstrap, load.topic, [load]).records == load.count


def test_diskless_and_classic_traffic_survive_a_killed_broker(kafka3):
    with running_proxies(kafka3) as [proxy]:
        leader = metadata_log_leader(kafka3, proxy)
        ride_through_killed_broker(kafka3, proxy, next(b for b in (1, 2, 3) if b != leader))


def test_diskless_and_classic_traffic_survive_the_killed_leader_of_the_metadata_log(kafka3):
    with running_proxies(kafka3) as [proxy]:
        ride_through_killed_broker(kafka3, proxy, metadata_log_leader(kafka3, proxy))


def metadata_log_leader(kafka, proxy):
    topic = proxy.settings["metadata.topic"]
    return described(kafka.bootstrap, topic).topics[topic].partitions[0].leader


def ride_through_killed_broker(kafka, proxy, broker):
    classic_topic = new_topic(proxy.bootstrap, PARTITIONS, diskless=False)
    classic = Load(proxy.bootstrap, classic_topic, PARTITIONS)
    try:
        with diskless_load(proxy) as diskless:
            classic.wait_for_acknowledged(1000)
            kafka.kill_broker(broker)
            try:
                classic.wait_for_acknowledged(20_000)
                diskless.wait_for_acknowledged(2000)
            finally:
                kafka.start_broker(broker)
                wait_until_healthy(kafka)
            classic.wait_for_acknowledged(2000)
    finally:
        classic.stop_sending()
    classic.finish()
    assert read_and_verify(proxy.bootstrap, diskless.topic, [diskless]).records == diskless.count
    assert read_and_verify(proxy.bootstrap, classic_topic, [classic]).records == classic.count


def test_an_unavailable_store_delays_records_and_loses_none(kafka3):
    with running_proxies(kafka3) as [proxy]:
        with diskless_load(proxy) as load:
            unavailable = [{"operation": operation, "fault": "unavailable", "for_ms": OUTAGE_SECONDS * 1000}
                           for operation in ("put", "get")]
            proxy.set_store_faults(unavailable)
            failed = 'sidestream_object_store_errors_total{operation="put"}'
            wait_for(lambda: proxy.metrics()[failed] > 0, 60, "an upload to fail for good")
            load.wait_for_acknowledged(20_000)
        assert load.longest_pause > OUTAGE_SECONDS / 2, "the store was not seen to be away"
        assert proxy.process.poll() is None
        assert read_and_verify(proxy.bootstrap, load.topic, [load]).records == load.count


def test_a_deleted_metadata_store_is_rebuilt_from_the_log(kafka3):
    with running_proxies(kafka3) as [proxy]:
        with diskless_load(proxy) as load:
            load.wait_for_acknowledged(10_000)
        before = read_and_verify(proxy.bootstrap, load.topic, [load])
        for end in (proxy.terminate, proxy.kill):
            end()
            proxy.metadata_store.unlink()
            proxy.start()
            assert read_and_verify(proxy.bootstrap, load.topic, [load]) == before
        # Sequences of the producer must have come back as well.
        more = Load(proxy.bootstrap, load.topic, PARTITIONS, sender=1, limit=10_000, rate=None).finish()
        after = read_and_verify(proxy.bootstrap, load.topic, [load, more])
        assert after.records == before.records + 10_000


def test_a_producer_goes_on_where_it_was_when_the_metadata_store_was_deleted(kafka3):
    with running_proxies(kafka3) as [proxy]:
        with diskless_load(proxy) as load:
            proxy.kill()
            proxy.metadata_store.unlink()
            proxy.start()
        assert read_and_verify(proxy.bootstrap, load.topic, [load]).records == load.count


def test_a_terminated_proxy_drains_and_its_clients_go_on(kafka3):
    with running_proxies(kafka3) as [proxy]:
        with diskless_load(proxy) as load:
            for _ in range(3):
                assert proxy.terminate() == 0
                proxy.start()
                load.wait_for_acknowledged(1000)
        assert "were not all answered in time" not in proxy.log.read_text()
        assert "did not drain in time" not in proxy.log.read_text()
        assert read_and_verify(proxy.bootstrap, load.topic, [load]).records == load.count


def test_a_frozen_proxy_wakes_up_and_its_clients_go_on(kafka3):
    with running_proxies(kafka3) as [proxy]:
        with diskless_load(proxy) as load:
            freeze(proxy)
        assert read_and_verify(proxy.bootstrap, load.topic, [load]).records == load.count


def test_clients_of_a_frozen_proxy_move_to_the_other_and_nothing_is_doubled(kafka3):
    with running_proxies(kafka3, zones=("zone-a", "zone-b")) as [a, b]:
        impatient = {"socket.timeout.ms": 3000, "request.timeout.ms": 3000}
        with diskless_load(a, f"{a.bootstrap},{b.bootstrap}", settings=impatient) as load:
            freeze(a)
        assert read_and_verify(b.bootstrap, load.topic, [load]).records == load.count
        assert read_and_verify(a.bootstrap, load.topic, [load]).records == load.count


def freeze(proxy):
    """The length of the freeze is what is tested here; the load goes on meanwhile."""
    proxy.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(OUTAGE_SECONDS)
    finally:
        proxy.process.send_signal(signal.SIGCONT)


def test_a_proxy_stops_when_another_process_takes_its_id(kafka3):
    with running_proxies(kafka3) as [first]:
        store = first.settings["store.url"].removeprefix("file://")
        topic = {"metadata.topic": first.settings["metadata.topic"]}
        with diskless_load(first) as load:
            pass
        second = Proxy(kafka3, store, proxy_id=first.settings["proxy.id"], settings=topic)
        try:
            wait_for(lambda: first.process.poll() is not None, 60, "the first process to end")
            assert first.process.returncode != 0
            assert "another process opened proxy.id 1" in first.log.read_text()
            assert read_and_verify(second.bootstrap, load.topic, [load]).records == load.count
        finally:
            second.stop()


def kill_and_restart(proxy):
    proxy.kill()
    proxy.start()


def terminate_and_restart(proxy):
    assert proxy.terminate() == 0
    proxy.start()


def fail_uploads_after_they_are_done(proxy):
    fail_for_a_while(proxy, "error-after")


def fail_uploads_before_they_are_done(proxy):
    fail_for_a_while(proxy, "error-before")


def fail_for_a_while(proxy, fault):
    """Longer than an upload is repeated, so that segments fail for good and the producer has to send them again."""
    failed = 'sidestream_object_store_errors_total{operation="put"}'
    before = proxy.metrics()[failed]
    proxy.set_store_faults([{"operation": "put", "fault": fault}])
    wait_for(lambda: proxy.metrics()[failed] >= before + 2, 60, "uploads to fail for good")
    proxy.set_store_faults([])


@pytest.mark.parametrize("break_it", [kill_and_restart, terminate_and_restart, fail_uploads_after_they_are_done,
                                      fail_uploads_before_they_are_done], ids=lambda f: f.__name__)
def test_a_java_producer_with_five_requests_in_flight_loses_and_doubles_nothing(kafka3, break_it):
    """Its records are the numbers from 0, spread over the partitions by the client."""
    count = 40_000
    with running_proxies(kafka3) as [proxy], ThreadPoolExecutor() as threads:
        topic = new_topic(proxy.bootstrap, PARTITIONS)
        produced = threads.submit(
            kafka_tool, "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", proxy.bootstrap, "--topic",
            topic, "--num-records", str(count), "--throughput", "2000", "--payload-monotonic", "--command-property",
            "delivery.timeout.ms=300000", "batch.size=1000", timeout=400)
        taken_in = f'sidestream_topic_produced_records_total{{topic="{topic}"}}'
        for _ in range(2):
            wait_for(lambda: produced.done() or proxy.metrics().get(taken_in, 0) > 2000, 120, "records to arrive")
            assert not produced.done(), f"too late to break anything:\n{produced.result()}"
            break_it(proxy)
        told = produced.result()
        assert f"{count} records sent" in told.splitlines()[-1], told
        numbers = [[int(value) for value in values] for values in read_values(proxy.bootstrap, topic, PARTITIONS)]
        assert all(lower < higher for one in numbers for lower, higher in itertools.pairwise(one))
        assert sorted(number for one in numbers for number in one) == list(range(count))


def test_records_written_past_the_proxy_are_reported(kafka3):
    with running_proxies(kafka3) as [proxy]:
        with diskless_load(proxy) as load:
            pass
        past = Load(kafka3.bootstrap, load.topic, PARTITIONS, sender=9, limit=100).finish()
        assert past.count == 100
        wait_for(lambda: proxy.metrics()["sidestream_stray_partitions"] == PARTITIONS, 60, "the strays to be counted")
        assert "past the proxy" in proxy.log.read_text() and load.topic in proxy.log.read_text()
        # The topic itself is as it was.
        assert read_and_verify(proxy.bootstrap, load.topic, [load]).records == load.count
