"""Clients that move to the proxy one by one: a group may have members behind it and beside it, and every record is read
once, in order.
"""

import pytest

from members import PARTITIONS, reading
from workload import Load, new_topic, read_and_verify


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_half_behind_the_proxy_and_half_direct_reads_everything_once(kafka3, proxy3, protocol):
    topic = new_topic(proxy3.bootstrap, PARTITIONS, diskless=False)
    doors = [proxy3.bootstrap, kafka3.bootstrap]
    loads = [Load(door, topic, PARTITIONS, sender=sender, rate=500) for sender, door in enumerate(doors)]
    try:
        with reading([topic], protocol) as group:
            for door in doors:
                group.join(door)
            group.wait_until_shared()
            for door in doors * 2:
                joined = group.join(door)
                group.wait_until_shared()
                group.wait_for_more(topic, 500)
                # The longest there leaves; the others take over, on either side.
                first = group.members[0]
                assert first is not joined
                first.leave()
                group.wait_until_shared()
                group.wait_for_more(topic, 500)
            for load in loads:
                load.finish()
            read = read_and_verify(proxy3.bootstrap, topic, loads)
            group.finish({(topic, partition): end for partition, end in enumerate(read.ends)})
    finally:
        for load in loads:
            load.stop_sending()
