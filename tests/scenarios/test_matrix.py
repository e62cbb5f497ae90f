"""Every client library does every operation on topics of both kinds, through the proxy only.

All cells run at once, as many as there is room for, when the first of them is asked for; each is then a test of its own.
The table of what was seen is the one in the README.
"""

import concurrent.futures
import time
import traceback

import pytest

from clients import KINDS, Clients
from harness import Proxy
from matrix_driver import COMMANDS, Driver, Missing
from matrix_operations import OPERATIONS, Cell

# Cells in work at once. They wait far more than they compute.
AT_ONCE = 12


@pytest.fixture(scope="module")
def lenient(kafka3, tmp_path_factory):
    """A proxy that takes producers which are not idempotent, for the client that has no other. It has a log of its own."""
    settings = {"diskless.idempotence": "warn", "metadata.topic": "__diskless_metadata_lenient"}
    proxy = Proxy(kafka3, tmp_path_factory.mktemp("store"), settings=settings)
    yield proxy
    proxy.stop()


@pytest.fixture(scope="module")
def outcomes(request, proxy3, clients, lenient):
    """What came of each cell that this run has selected."""
    selected = [item.callspec.params for item in request.session.items
                if getattr(item, "originalname", "") == "test_cell" and item.module is request.module]
    wanted = {(p["client"], p["kind_of_topic"], p["operation"]) for p in selected}
    columns = {}
    for client, kind, operation in sorted(wanted):
        columns.setdefault((client, kind), []).append(operation)
    drivers, results = {}, {}

    def driver(client, proxy):
        if (client, proxy) not in drivers:
            drivers[client, proxy] = Driver(client, proxy.bootstrap)
        return drivers[client, proxy]

    def cell(client, kind):
        if client != "kafka-go":
            return Cell(driver(client, proxy3), clients, kind)
        strict = Cell(driver(client, proxy3), clients, kind, idempotent=False)
        if kind == "classic":
            return strict
        return Cell(driver(client, lenient), Clients(lenient), kind, idempotent=False, strict=strict)

    try:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            jobs = []
            for (client, kind), operations in columns.items():
                column = cell(client, kind)
                jobs += [pool.submit(run, results, client, column, operation) for operation in operations]
        for job in jobs:
            job.result()
    finally:
        for each in drivers.values():
            each.stop()
    return results


def run(results, client, cell, operation):
    began = time.monotonic()
    try:
        outcome = OPERATIONS[operation][1](cell) or "yes"
    except Missing:
        outcome = "no API"
    except Exception:
        outcome = traceback.format_exc()
    results[client, operation, cell.kind] = outcome
    print(f"{time.monotonic() - began:6.1f} s {client} {operation} {cell.kind}: {outcome.splitlines()[-1]}", flush=True)


@pytest.mark.parametrize("kind_of_topic", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("client", COMMANDS)
def test_cell(outcomes, client, operation, kind_of_topic):
    seen = outcomes[client, operation, kind_of_topic]
    assert seen in ("yes", "refused", "no API"), seen
