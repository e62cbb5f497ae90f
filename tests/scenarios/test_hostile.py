"""Hostile and broken clients before a real Kafka. What needs no Kafka is in tests/hostile_clients.rs."""

import socket
import struct
import uuid

import pytest

CREATE_TOPICS = 19
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
