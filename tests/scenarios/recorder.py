"""Records what passes a port in both directions, and takes it apart into requests and responses.

No root and no packet capture: whoever is recorded advertises 127.0.0.1 and listens on another loopback address with
the same port number; the recorder listens where clients are sent and carries every byte there and back.
"""

import asyncio
import dataclasses
import struct
import threading

HEADER = struct.Struct(">hhih")  # API key, version, correlation id, length of the client id
PIECE = 256 * 1024


@dataclasses.dataclass
class Exchange:
    """One request and its response, both whole frames with their lengths."""

    request: bytes
    response: bytes | None = None

    def __post_init__(self):
        self.api_key, self.version, self.correlation_id, length = HEADER.unpack_from(self.request, 4)
        self.client_id = self.request[14:14 + max(0, length)].decode()

    @property
    def name(self):
        """What tells this request from every other one of its connection."""
        return self.client_id, self.api_key, self.version, self.correlation_id


class Connection:
    """The bytes of one connection."""

    def __init__(self, port):
        self.port = port
        self.sent = bytearray()
        self.received = bytearray()

    def exchanges(self):
        """In order. Kafka answers in the order of the requests; a Produce with acks=0 it does not answer."""
        exchanges = [Exchange(frame) for frame in frames(self.sent)]
        asked = iter(exchanges)
        for response in frames(self.received):
            (correlation_id,) = struct.unpack_from(">i", response, 4)
            answered = next((e for e in asked if e.correlation_id == correlation_id), None)
            assert answered is not None, f"port {self.port}: nobody asked for response {correlation_id}"
            answered.response = response
        return exchanges


def frames(stream):
    """The whole frames of a stream, each with its length; what the end cut off is left out."""
    at, found = 0, []
    while at + 4 <= len(stream):
        end = at + 4 + int.from_bytes(stream[at:at + 4], "big")
        if end > len(stream):
            break
        found.append(bytes(stream[at:end]))
        at = end
    return found


class Recorder:
    """Listens on a port of 127.0.0.1 and carries everything to the same port of another loopback address."""

    def __init__(self, port, host):
        self.connections = []
        self._writers = set()
        self._port, self._host = port, host
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"recorder of {port}", daemon=True)
        self._thread.start()
        listening = asyncio.start_server(self._carry, "127.0.0.1", port, limit=PIECE)
        try:
            self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(10)
        except BaseException:
            self._end_loop()
            raise

    async def _carry(self, client_reader, client_writer):
        connection = Connection(self._port)
        try:
            server_reader, server_writer = await asyncio.open_connection(self._host, self._port, limit=PIECE)
        except OSError:
            client_writer.close()
            return
        self.connections.append(connection)
        writers = {client_writer, server_writer}
        self._writers |= writers
        try:
            await asyncio.gather(
                self._record(client_reader, server_writer, connection.sent),
                self._record(server_reader, client_writer, connection.received))
        except OSError:
            pass  # One end is gone: so is the connection.
        finally:
            for writer in writers:
                writer.close()
            self._writers -= writers

    async def _record(self, reader, writer, into):
        while piece := await reader.read(PIECE):
            into += piece
            writer.write(piece)
            await writer.drain()
        writer.write_eof()

    async def _stop(self):
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        while self._writers:
            await asyncio.sleep(0.01)

    def _end_loop(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def stop(self):
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._end_loop()
