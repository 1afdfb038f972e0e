"""Lets programs in a sandbox reach chosen ports of this machine, such as the server of a policy."""

import asyncio
from contextlib import suppress
from pathlib import Path

CHUNK_BYTES = 1 << 16


class PortRelay:
    """Listens on sockets in a folder that is mounted into the sandbox; each leads to one local port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: set[int] = set()
        self.answered = False  # whether anything has come back from a port
        self._servers: list[asyncio.Server] = []

    async def open(self, port: int) -> str:
        """Open the way to a port; returns the name of its socket in the folder."""

        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._relay_connection(reader, writer, port)

        path = self.folder / str(port)
        server = await asyncio.start_unix_server(connect, str(path))
        path.chmod(0o666)  # for the user of the sandbox; only that sandbox sees the folder
        self._servers.append(server)
        self.ports.add(port)
        return path.name

    def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.close()

    async def _relay_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> None:
        with suppress(OSError):
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_copy(reader, target_writer), self._copy_back(target_reader, writer))
        writer.close()

    async def _copy_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            if first := await reader.read(CHUNK_BYTES):
                self.answered = True
                writer.write(first)
            await _copy(reader, writer)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
