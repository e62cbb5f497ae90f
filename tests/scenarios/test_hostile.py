"""Hostile and broken clients before a real Kafka. What needs no Kafka is in tests/hostile_clients.rs."""

import contextlib
import pathlib
import socket
import struct
import uuid

import pytest

from harness import wait_for

FETCH, METADATA, API_VERSIONS, CREATE_TOPICS = 1, 3, 18, 19
INVALID_TOPIC_EXCEPTION = 17


def frame(key, version, body):
    content = struct.pack(">hhih", key, version, 7, 4) + b"test" + body
    return struct.pack(">i", len(content)) + content


def string(text):
    return struct.pack(">h", len(text)) + text.encode()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def read(connection, count):
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            return None
        data += part
    return data


def answer(connection):
    """The body of the next answer, or nothing where the connection ends."""
    length = read(connection, 4)
    return read(connection, struct.unpack(">i", length)[0])[4:] if length else None


def call(port, key, version, body):
    with connect(port) as connection:
        connection.sendall(frame(key, version, body))
        return answer(connection)


def create(port, name):
    """The error code of a CreateTopics in version 2."""
    topic = string(name) + struct.pack(">ihii", 1, 1, 0, 0)
    body = call(port, CREATE_TOPICS, 2, struct.pack(">i", 1) + topic + struct.pack(">ib", 20_000, 0))
    return struct.unpack(">h", body[4 + 4 + 2 + len(name):][:2])[0]


def resident(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024


def is_served(port):
    return call(port, API_VERSIONS, 0, b"") is not None


@pytest.mark.parametrize("prefix", ["", "diskless-"], ids=["classic", "diskless"])
def test_a_name_of_249_characters_is_accepted_and_one_of_250_is_refused_as_by_kafka(clients, kafka3, prefix):
    def name(length):
        return (prefix + uuid.uuid4().hex).ljust(length, "n")

    direct = kafka3.base_port
    for length, expected in ((249, 0), (250, INVALID_TOPIC_EXCEPTION), (1000, INVALID_TOPIC_EXCEPTION)):
        assert create(direct, "direct-" + name(length - 7)) == expected, f"Kafka's own answer for {length}"
        assert create(clients.proxy.port, name(length)) == expected, f"{length} characters"
    longest = name(249)
    assert create(clients.proxy.port, longest) == 0
    assert clients.is_diskless(longest) == bool(prefix)


def test_every_key_in_every_version_is_answered_or_ends_its_own_connection(clients):
    ports = [clients.proxy.port, clients.proxy.settings["listener.mapped.port.base"] + 1]
    for key in [*range(100), 500, 9_999, 32_767, -1, -32_768]:
        for version in (-1, 0, 1, 3, 7, 12, 20, 999):
            for port in ports:
                with connect(port) as connection:
                    connection.sendall(struct.pack(">ihhi", 48, key, version, 5) + bytes(40))
                    connection.shutdown(socket.SHUT_WR)
                    with contextlib.suppress(ConnectionError):
                        while answer(connection) is not None:
                            pass
    assert is_served(clients.proxy.port)
    assert clients.proxy.process.poll() is None


def test_classic_readers_that_never_read_do_not_grow_memory(clients):
    topic = clients.topic("classic", "deaf")
    for _ in range(16):
        clients.produce(topic, [bytes(900_000)])
    body = struct.pack(">iiiib", -1, 1000, 1, 50_000_000, 0) + struct.pack(">i", 1) + string(topic)
    fetch = frame(FETCH, 4, body + struct.pack(">iiqi", 1, 0, 0, 50_000_000))
    leaders = [clients.proxy.settings["listener.mapped.port.base"] + broker for broker in (1, 2, 3)]
    before = resident(clients.proxy.process)
    with contextlib.ExitStack() as stack:
        deaf = []
        for _ in range(30):
            for port in leaders:
                connection = stack.enter_context(connect(port))
                connection.sendall(fetch * 20)
                deaf.append(connection)
        wait_for(lambda: clients.proxy.metrics()["sidestream_client_connections"] >= len(deaf), 30, "all of them")
        # Whatever is asked of others goes its way.
        for _ in range(20):
            assert is_served(clients.proxy.port)
        grown = resident(clients.proxy.process) - before
    assert grown < len(deaf) * 1_000_000, f"{grown} bytes for {len(deaf)} connections"


def test_writers_of_one_byte_hold_nobody(clients):
    topic = clients.topic("classic", "slow-writers")
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(port)) for port in
                [clients.proxy.port, clients.proxy.settings["listener.mapped.port.base"] + 1] * 20]
        whole = frame(METADATA, 1, struct.pack(">i", 1) + string(topic))
        for byte in whole[:-1]:
            for connection in slow:
                connection.sendall(bytes([byte]))
            assert is_served(clients.proxy.port)
        for connection in slow:
            connection.sendall(whole[-1:])
            assert answer(connection) is not None
