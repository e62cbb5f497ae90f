"""The example programs and the shipped configurations that run on one machine, against a running proxy."""

import os
import pathlib
import subprocess
import sys

import pytest

from harness import BINARY, ROOT, Proxy

EXAMPLES = pathlib.Path(os.environ.get("SIDESTREAM_EXAMPLES", BINARY.parent / "examples"))


def run(*command):
    """The output of a program that must succeed."""
    done = subprocess.run([str(part) for part in command], text=True, timeout=120, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture
def proxy(kafka1, tmp_path):
    proxy = Proxy(kafka1, tmp_path / "objects")
    yield proxy
    proxy.stop()


def segments(tmp_path):
    return sorted((tmp_path / "objects").glob("*/wal/*"))


@pytest.mark.parametrize("program", [
    (EXAMPLES / "produce_consume",),
    (sys.executable, ROOT / "examples" / "produce_consume.py"),
], ids=["rust", "python"])
@pytest.mark.parametrize("kind", ["diskless", "classic"])
def test_produce_consume_reads_back_what_it_wrote(proxy, tmp_path, program, kind):
    topic = f"{kind}-example{pathlib.Path(program[-1]).suffix}"
    if kind == "diskless":
        run(BINARY, "topics", "create", topic, "--bootstrap", proxy.bootstrap)
    output = run(*program, proxy.bootstrap, topic)
    assert f"wrote and read 10 records of {topic}, offsets 0 to 9" in output
    assert bool(segments(tmp_path)) == (kind == "diskless")


def test_read_wal_segment_says_what_an_object_holds(proxy, tmp_path):
    topic = "diskless-example-segment"
    run(BINARY, "topics", "create", topic, "--bootstrap", proxy.bootstrap)
    run(EXAMPLES / "produce_consume", proxy.bootstrap, topic)
    described = run(BINARY, "topics", "describe", topic, "--admin", f"127.0.0.1:{proxy.admin_port}")
    topic_id = described.splitlines()[0].split()[-1]
    outputs = [run(EXAMPLES / "read_wal_segment", segment) for segment in segments(tmp_path)]
    lines = [line for output in outputs for line in output.splitlines() if topic_id in line]
    assert sum(int(line.split(" records")[0].split()[-1]) for line in lines) == 10


def test_read_wal_segment_refuses_half_an_object(tmp_path):
    half = tmp_path / "half"
    half.write_bytes(b"\0" * 40)
    done = subprocess.run([str(EXAMPLES / "read_wal_segment"), str(half)], text=True, capture_output=True, timeout=30)
    assert done.returncode == 1
    assert "is not a whole WAL segment" in done.stderr


@pytest.mark.parametrize("name", ["demo.toml", "standalone.toml"])
def test_a_configuration_for_one_machine_passes_check(kafka1, tmp_path, name):
    output = run(BINARY, "check", "--config", ROOT / "proxy-config" / name,
                 "--set", f"upstream.bootstrap.servers={kafka1.bootstrap}",
                 "--set", f"metadata.directory={tmp_path / 'metadata'}",
                 "--set", f"store.url=file://{tmp_path / 'objects'}")
    assert "0 failed" in output or "all well" in output
