"""Every client library does every operation on topics of both kinds, through the proxy only.

All cells run at once, as many as there is room for, when the first of them is asked for; each is then a test of its own.
The table of what was seen is the one in the README.
"""

import concurrent.futures
import contextlib
import itertools
import time
import traceback

import pytest

import matrix_table
from clients import KINDS, Clients
from harness import Proxy
from matrix_driver import COMMANDS, Driver, Missing
from matrix_expected import expected
from matrix_operations import OPERATIONS, Cell

# Cells in work at once. They wait far more than they compute.
AT_ONCE = 12

# Before a single broker, enough to see that nothing depends on there being several.
ONE_BROKER = ["create", "idempotent", "not_idempotent", "seek", "group", "cluster"]


class Matrix:
    """The drivers, and what came of each cell. `lenient` is for the client that cannot do without."""

    def __init__(self, stack, proxy, lenient=None):
        self.proxies = {"require": proxy, "warn": lenient}
        self.drivers = {}
        self.results = {}
        self.times = []
        self.again = []
        self._stack = stack

    def driver(self, client, mode="require"):
        if (client, mode) not in self.drivers:
            self.drivers[client, mode] = Driver(client, self.proxies[mode].bootstrap)
            self._stack.callback(self.drivers[client, mode].stop)
        return self.drivers[client, mode]

    def column(self, client, kind):
        clients = {mode: Clients(proxy) for mode, proxy in self.proxies.items() if proxy}
        cell = Cell(self.driver(client), clients["require"], kind, idempotent=client != "kafka-go")
        if client == "kafka-go" and kind == "diskless" and "warn" in clients:
            return Cell(self.driver(client, "warn"), clients["warn"], kind, idempotent=False, strict=cell)
        return cell

    def run(self, cells):
        """Runs cells, given by client, operation and kind: neighbours are of different clients, and groups begin."""
        columns = {column: self.column(*column) for column in sorted({(client, kind) for client, _, kind in cells})}
        listed = list(OPERATIONS)
        ordered = sorted(cells, key=lambda cell: (-listed.index(cell[1]), cell[2], cell[0]))
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            jobs = [pool.submit(self._run, client, columns[client, kind], operation)
                    for client, operation, kind in ordered]
        for job in jobs:
            job.result()
        # A deadline of a client's own can pass while eleven others keep two cores busy. What is wrong stays wrong alone.
        for client, operation, kind in ordered:
            if self.results[client, operation, kind] != expected(client, operation, kind):
                self.again.append((client, operation, kind, self.results[client, operation, kind]))
                self._run(client, columns[client, kind], operation)

    def _run(self, client, cell, operation):
        began = time.monotonic()
        try:
            outcome = OPERATIONS[operation][1](cell) or "yes"
        except Missing:
            outcome = "no API"
        except Exception:
            outcome = traceback.format_exc()
        self.results[client, operation, cell.kind] = outcome
        self.times.append((time.monotonic() - began, client, operation, cell.kind, outcome.splitlines()[-1]))

    def check(self, client, operation, kind):
        seen = self.results[client, operation, kind]
        assert seen == expected(client, operation, kind), seen


@pytest.fixture(scope="module")
def lenient(kafka3, tmp_path_factory):
    """A proxy that takes producers which are not idempotent. It has a metadata log of its own."""
    settings = {"diskless.idempotence": "warn", "metadata.topic": "__diskless_metadata_lenient"}
    proxy = Proxy(kafka3, tmp_path_factory.mktemp("store"), settings=settings)
    yield proxy
    proxy.stop()


def selected(request, function):
    """The cells of a test function that this run has selected."""
    items = [item for item in request.session.items if item.module is request.module]
    chosen = [item.callspec.params for item in items if item.originalname == function]
    return {(p["client"], p["operation"], p["topics"]) for p in chosen}, {item.originalname for item in items}


@pytest.fixture(scope="module")
def matrix(request, proxy3, lenient):
    cells, functions = selected(request, "test_cell")
    if "test_the_table_in_the_readme_is_what_was_seen" in functions:
        cells = set(itertools.product(COMMANDS, OPERATIONS, KINDS))
    with contextlib.ExitStack() as stack:
        made = Matrix(stack, proxy3, lenient)
        made.run(cells)
        slowest = "\n".join(f"{seconds:6.1f} s  {' '.join(cell)}" for seconds, *cell in sorted(made.times, reverse=True))
        again = "\n".join(f"asked again, alone: {' '.join(cell)}\n{first}" for *cell, first in made.again)
        (matrix_table.FILE.parent / "matrix-times.txt").write_text(f"{slowest}\n{again}\n")
        yield made


@pytest.fixture(scope="module")
def one_broker(request, kafka1, tmp_path_factory):
    cells, _ = selected(request, "test_cell_before_one_broker")
    proxy = Proxy(kafka1, tmp_path_factory.mktemp("store"))
    try:
        with contextlib.ExitStack() as stack:
            made = Matrix(stack, proxy)
            made.run(cells)
            yield made
    finally:
        proxy.stop()


@pytest.mark.parametrize("topics", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("client", COMMANDS)
def test_cell(matrix, client, operation, topics):
    matrix.check(client, operation, topics)


@pytest.mark.parametrize("topics", KINDS)
@pytest.mark.parametrize("operation", ONE_BROKER)
@pytest.mark.parametrize("client", COMMANDS)
def test_cell_before_one_broker(one_broker, client, operation, topics):
    one_broker.check(client, operation, topics)


def test_the_table_in_the_readme_is_what_was_seen(matrix):
    versions = {client: matrix.driver(client)("hello")["version"] for client in COMMANDS}
    table = matrix_table.render(matrix.results, versions)
    matrix_table.write(table)
    assert matrix_table.in_readme() == table, \
        f"run tests/scenarios/matrix_table.py: it puts {matrix_table.FILE} into the README"
