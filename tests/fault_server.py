"""A server on loopback that answers a scrape in every wrong way there is, and in the right one."""

import asyncio
import gzip
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Writer: TypeAlias = asyncio.StreamWriter
Answer: TypeAlias = Callable[["FaultServer", str, Writer], Awaitable[None]]

INFO = (
    'vllm:cache_config_info{{block_size="16",cache_dtype="auto",enable_prefix_caching="False",'
    'engine="0",kv_cache_memory_bytes="1048576",kv_cache_size_tokens="{tokens}",'
    'num_gpu_blocks="{blocks}",num_gpu_blocks_override="None"}} 1.0\n'
)


def page(
    count: int, *, blocks: int = 64, started: float | None = 1000.0, running: int = 1
) -> bytes:
    """A small page of vLLM whose counters stand at `count`."""
    one = '{engine="0",model_name="tiny"}'
    text = "" if started is None else f"process_start_time_seconds {started}\n"
    text += "# TYPE vllm:num_preemptions counter\n# TYPE vllm:prompt_tokens counter\n"
    text += f"vllm:num_preemptions_total{one} {count}\nvllm:prompt_tokens_total{one} {count}\n"
    text += f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{one} {running}\n"
    text += INFO.format(blocks=blocks, tokens=blocks * 16)
    return text.encode()


class FaultServer:
    """Answers by `answer`, which a test replaces as it likes; `served` pages were sent whole."""

    def __init__(self) -> None:
        self.answer: Answer = counting
        self.version: str | None = "0.32.0"
        self.served = self.port = 0
        self.requests: list[str] = []
        self.connections: list[list[int]] = []
        self.ready = threading.Event()
        self.stop: Callable[[], object] = lambda: None

    @property
    def url(self) -> str:
        """Base address."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self) -> None:
        """Serve until `stop` is called, from any thread."""
        end, loop = asyncio.Event(), asyncio.get_running_loop()
        self.stop = lambda: loop.call_soon_threadsafe(end.set)
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        await end.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        sent: list[int] = []
        self.connections.append(sent)
        try:
            while first := await reader.read(1):
                if first == b"\x16":  # a TLS client
                    await send(writer, b"", status="400 Bad Request")
                    return
                text = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                self.requests.append(text)
                path = text.split(" ", 2)[1]
                if path == "/metrics":
                    await self.answer(self, text, writer)
                elif path == "/version" and self.version:
                    await send(writer, b'{"version": "%s"}' % self.version.encode())
                else:
                    await send(writer, b"no", status="404 Not Found")
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@contextmanager
def fault_server() -> Iterator[FaultServer]:
    """A running server, on a thread of its own."""
    server = FaultServer()
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    assert server.ready.wait(10)
    try:
        yield server
    finally:
        server.stop()
        thread.join(10)


async def send(
    writer: Writer, body: bytes, *, status: str = "200 OK", headers: str = "", length: bool = True
) -> None:
    """One answer, its length stated unless `length` is false (the end of the connection is)."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n{headers}"
    head += f"Content-Length: {len(body)}\r\n" if length else "Connection: close\r\n"
    writer.write(f"{head}\r\n".encode() + body)
    await writer.drain()
    if not length:
        writer.close()


async def counting(server: FaultServer, request: str, writer: Writer) -> None:
    """A whole page whose counters count the pages that were sent."""
    del request
    body = page(server.served + 1)
    await send(writer, body)
    server.served += 1


def fixed(body: bytes, *, status: str = "200 OK", headers: str = "", length: bool = True) -> Answer:
    """Always this answer."""

    async def answer(server: FaultServer, request: str, writer: Writer) -> None:
        del server, request
        await send(writer, body, status=status, headers=headers, length=length)

    return answer


async def hang(server: FaultServer, request: str, writer: Writer) -> None:
    """Never answer."""
    del server, request, writer
    await asyncio.sleep(3600)


async def a_byte_now_and_then(server: FaultServer, request: str, writer: Writer) -> None:
    """A page that is always arriving."""
    del server, request
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for byte in page(1):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.05)


async def slow_headers(server: FaultServer, request: str, writer: Writer) -> None:
    """A status line, then headers without an end."""
    del server, request
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for k in range(10_000):
        writer.write(b"X-%d: y\r\n" % k)
        await writer.drain()
        await asyncio.sleep(0.05)


async def a_gigabyte(server: FaultServer, request: str, writer: Writer) -> None:
    """A page that says nothing of its length and has a gigabyte."""
    del server, request
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    for _ in range(1024):
        writer.write(b"vllm:x 1\n" * (2**20 // 9))
        await writer.drain()


async def cut_by_length(server: FaultServer, request: str, writer: Writer) -> None:
    """Half of what was announced, then the end."""
    del server, request
    body = page(1)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
    writer.write(body[: len(body) // 2])
    await writer.drain()
    writer.close()


async def cut_in_a_chunk(server: FaultServer, request: str, writer: Writer) -> None:
    """A chunk that ends before its size."""
    del server, request
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\nvllm:x 1\n")
    await writer.drain()
    writer.close()


async def goodbye(server: FaultServer, request: str, writer: Writer) -> None:
    """Close without a word."""
    del server, request
    writer.close()


async def not_http(server: FaultServer, request: str, writer: Writer) -> None:
    """Bytes of another protocol."""
    del server, request
    writer.write(b"\x00\x01\x02 who are you\r\n\r\n")
    await writer.drain()
    writer.close()


def bomb(size: int) -> bytes:
    """A gzip member a thousandth of what it holds."""
    return gzip.compress(b"#" * size)
