"""Mistakes of the operator: each is told by what happened, to what, and what to do, and ends in a failure."""

import contextlib
import http.server
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading

import pytest

from harness import BINARY, Proxy, free_port_block, wait_for

NOBODY = 65534
"""Root may write everywhere, so a scenario about rights runs the command as somebody else."""


@pytest.fixture
def place():
    """A directory that everybody may enter."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="sidestream-mistakes-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def settings(place, bootstrap="127.0.0.1:1", **changes):
    """A standalone proxy's settings as `--set` arguments over an empty file."""
    port = free_port_block(3)
    chosen = {
        "proxy.id": 1,
        "proxy.zone": "zone-a",
        "listener.advertised.host": "127.0.0.1",
        "listener.bootstrap.port": port,
        "upstream.bootstrap.servers": [bootstrap],
        "metadata.mode": "standalone",
        "metadata.directory": str(place / "metadata"),
        "store.url": "memory://",
        "admin.bind": f"127.0.0.1:{port + 1}",
        **{key.replace("__", "."): value for key, value in changes.items()},
    }
    file = place / "sidestream.toml"
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in chosen.items()))
    return chosen, ["--config", str(file)]


def sidestream(*arguments, **options):
    return subprocess.run([str(BINARY), *arguments], capture_output=True, text=True, timeout=120, **options)


def says(done, *parts):
    """Whether the command failed with one message that has all of these parts."""
    text = done.stdout + done.stderr
    missing = [part for part in parts if part not in text]
    assert not missing, f"{missing} not in:\n{text}"
    assert "panicked" not in text, text


def test_five_mistakes_are_told_at_once_each_with_its_line(place):
    file = place / "five.toml"
    file.write_text("""\
proxy.zone = 3

[listener]
advertised.host = "127.0.0.1"
bootstrap.port = 99999
security.protocol = "TLS"

[upstream]
bootstrap.servers = ["nowhere"]

[diskless]
idempotenc = "warn"
""")
    for command in ("run", "check"):
        done = sidestream(command, "--config", str(file))
        assert done.returncode == 64
        says(done, "line 1: proxy.zone", "line 5: listener.bootstrap.port", "line 6: listener.security.protocol",
             "line 9: upstream.bootstrap.servers", "line 12: diskless.idempotenc is not a setting; did you mean")


def test_a_file_that_is_no_toml_is_told_with_its_line(place):
    file = place / "broken.toml"
    file.write_text('proxy.id = 1\nproxy.zone = "a\n')
    done = sidestream("run", "--config", str(file))
    assert done.returncode == 64
    says(done, "line 2: ")


def test_a_file_that_is_not_there_is_told(place):
    done = sidestream("run", "--config", str(place / "absent.toml"))
    assert done.returncode == 64
    says(done, "absent.toml", "cannot be read", "--config")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:9092"])
def test_an_upstream_that_cannot_be_reached_is_told(place, address):
    _, config = settings(place, bootstrap=address)
    done = sidestream("run", *config)
    assert done.returncode == 1
    says(done, f"cannot be reached at {address}", "upstream.bootstrap.servers")
    checked = sidestream("check", *config)
    assert checked.returncode == 1
    says(checked, "fail  upstream", address, "upstream.bootstrap.servers")


@pytest.mark.parametrize("setting, taken", [("listener.bootstrap.port", "bootstrap"), ("admin.bind", "admin")])
def test_a_port_that_is_taken_is_told(place, setting, taken):
    chosen, config = settings(place)
    port = int(str(chosen[setting]).rsplit(":", 1)[-1])
    with socket.create_server(("127.0.0.1", port)):
        done = sidestream("run", *config)
    assert done.returncode == 1
    says(done, f"the {taken} listener cannot be opened on 127.0.0.1:{port}", setting, "free the port")


def test_a_mapped_port_that_is_taken_is_told(place, kafka1):
    with contextlib.ExitStack() as stack:
        base = free_port_block(4)
        for broker in range(4):
            stack.enter_context(socket.create_server(("127.0.0.1", base + broker)))
        _, config = settings(place, bootstrap=kafka1.bootstrap, listener__mapped__port__base=base)
        done = sidestream("run", *config)
    assert done.returncode == 1
    says(done, "a mapped listener cannot be opened", "listener.mapped.port.base", "Address already in use")


def test_a_mapped_port_that_cannot_be_one_is_told(place, kafka1):
    _, config = settings(place, bootstrap=kafka1.bootstrap, listener__mapped__port__base=65535)
    done = sidestream("run", *config)
    assert done.returncode == 1
    says(done, "listener.mapped.port.base 65535 plus broker id 1 is no port")


def as_anybody():
    """Options and a binary for a command that runs without root's rights."""
    if os.geteuid() != 0:
        return BINARY, {}
    # Where the binary lies, others may not be let in.
    copy = pathlib.Path(tempfile.mkdtemp(prefix="sidestream-binary-")) / "sidestream"
    copy.parent.chmod(0o755)
    shutil.copy(BINARY, copy)
    return copy, {"user": NOBODY, "group": NOBODY, "extra_groups": []}


@pytest.mark.parametrize("exists", [True, False], ids=["that exists", "to be made"])
def test_a_metadata_directory_that_cannot_be_written_is_told(place, exists):
    chosen, config = settings(place)
    directory = pathlib.Path(chosen["metadata.directory"])
    if exists:
        directory.mkdir()
        directory.chmod(0o555)
    else:
        place.chmod(0o555)
    binary, options = as_anybody()
    try:
        done = subprocess.run([str(binary), "run", *config], capture_output=True, text=True, timeout=120, **options)
    finally:
        if binary != BINARY:
            shutil.rmtree(binary.parent)
        place.chmod(0o755)
        if exists:
            directory.chmod(0o755)
    assert done.returncode == 1
    says(done, str(directory), "Permission denied", "metadata.directory")


class NoSuchBucket(http.server.BaseHTTPRequestHandler):
    """Answers as S3 does where there is no such bucket."""

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = (b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>NoSuchBucket</Code>'
                b"<Message>The specified bucket does not exist</Message><BucketName>absent</BucketName></Error>")
        self.send_response(404)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

    def log_message(self, *_):
        pass


@pytest.fixture
def s3_without_buckets():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), NoSuchBucket)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_bucket_that_does_not_exist_is_told(place, kafka1, s3_without_buckets):
    _, config = settings(place, bootstrap=kafka1.bootstrap, store__url="s3://absent/prefix",
                         store__option__aws_endpoint=s3_without_buckets, store__option__aws_allow_http="true",
                         store__option__aws_region="us-east-1", store__option__aws_access_key_id="key",
                         store__option__aws_secret_access_key="secret")
    done = sidestream("run", *config)
    assert done.returncode == 1
    says(done, "s3://absent/prefix", "NoSuchBucket", "store.url")
    checked = sidestream("check", *config)
    assert checked.returncode == 1
    says(checked, "fail  store", "s3://absent/prefix", "the bucket of store.url does not exist", "check that it exists")


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += atoi(getenv("CLOCK_IS_OFF_BY"));
    return answer;
}
"""


@pytest.fixture(scope="module")
def clock_library():
    """A library that puts a process's clock wrong."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="sidestream-clock-"))
    (directory / "clock.c").write_text(CLOCK)
    library = directory / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, directory / "clock.c", "-ldl"], check=True, timeout=60)
    yield library
    shutil.rmtree(directory)


def test_check_tells_of_a_clock_that_is_behind(clients, clock_library):
    config = str(clients.proxy.directory / "sidestream.toml")
    environment = {**os.environ, "LD_PRELOAD": str(clock_library), "CLOCK_IS_OFF_BY": "-600"}
    done = sidestream("check", "--config", config, env=environment)
    assert done.returncode == 1
    says(done, "fail  clock", "s behind the brokers", "set the clock")


@pytest.mark.parametrize("seconds, words", [(600, "ahead of the brokers"), (-600, "behind log time")])
def test_a_proxy_warns_of_its_own_wrong_clock(kafka1, clock_library, place, seconds, words):
    environment = {"LD_PRELOAD": str(clock_library), "CLOCK_IS_OFF_BY": str(seconds)}
    proxy = Proxy(kafka1, place / "store", settings={"metadata.topic": f"__diskless_clock_{abs(seconds + 1)}"},
                  environment=environment)
    try:
        wait_for(lambda: "this host's clock is" in proxy.log.read_text(), 30, "a warning about the clock")
        assert words in proxy.log.read_text()
    finally:
        proxy.stop()
