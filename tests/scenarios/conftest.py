"""Clusters that scenarios share (starting one takes up to ten seconds), and proxies in front of them."""

import collections
import pathlib
import shutil
import tempfile

import pytest

from clients import KINDS, Clients
from harness import Kafka, Proxy


# Brokers that live for minutes spend more on the second compiler than it saves them.
QUICK = "-XX:TieredStopAtLevel=1"


def pytest_collection_modifyitems(items):
    """The order in which workers take files: chaos first, which waits the longest, then those with the most tests."""
    counts = collections.Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path.name != "test_chaos.py", -counts[item.path]))


@pytest.fixture(scope="session")
def kafka3():
    """A cluster of three brokers with a rack each: zone-a, zone-b, zone-c."""
    cluster = Kafka(3, jvm=QUICK)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def kafka1():
    """A cluster of one broker."""
    cluster = Kafka(1, jvm=QUICK)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def proxy3(kafka3):
    """One proxy before three brokers, for scenarios that leave it as it is."""
    with_store = pathlib.Path(tempfile.mkdtemp(prefix="sidestream-store-"))
    proxy = Proxy(kafka3, with_store)
    yield proxy
    proxy.stop()
    shutil.rmtree(with_store, ignore_errors=True)


@pytest.fixture(scope="session")
def clients(proxy3):
    """Clients of the shared proxy."""
    return Clients(proxy3)


@pytest.fixture(params=KINDS)
def kind(request):
    """Runs a scenario once on a classic and once on a diskless topic."""
    return request.param
