"""A small Prometheus on loopback: the API over series in memory, its faults where a test wants."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

Labels = dict[str, str]
Points = list[tuple[int, float]]
Fault = Callable[[BaseHTTPRequestHandler], None]
_MATCHER = re.compile(r'([a-zA-Z_]\w*)(=~|=)"((?:[^"\\]|\\.)*)"')
_LOOK_BACK_MS = 300_000
_MOST_STEPS = 11_000


class FakePrometheus:
    """Series are (labels, points in milliseconds); `faults` answer first, one request each."""

    def __init__(self, series: list[tuple[Labels, Points]]) -> None:
        self.series, self.faults = series, list[Fault]()
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.left_open = False  # as Prometheus 3 takes a range, and 2 does not
        self.most_points = 10**9
        self.port = 0

    @property
    def url(self) -> str:
        """Base address."""
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, ask: dict[str, str]) -> tuple[int, Any]:
        """Status and JSON of one question."""
        match path:
            case "/api/v1/series":
                start, end = _ms(ask["start"]), _ms(ask["end"])
                found = [
                    labels
                    for labels, points in self._selected(ask["match[]"])
                    if any(start <= at <= end for at, _ in points)
                ]
                return 200, found
            case "/api/v1/query":
                selector, _, width = ask["query"].rpartition("[")
                end = _ms(ask["time"])
                start = end - int(width.removesuffix("ms]"))
                cut = [
                    (labels, [p for p in points if start + self.left_open <= p[0] <= end])
                    for labels, points in self._selected(selector)
                ]
                return self._matrix(cut)
            case "/api/v1/query_range":
                start, end, step = (_ms(ask[key]) for key in ("start", "end", "step"))
                if (end - start) // step + 1 > _MOST_STEPS:
                    return 400, None
                return self._matrix(self._steps(ask))
        return 404, None

    def _steps(self, ask: dict[str, str]) -> list[tuple[Labels, Points]]:
        query, stamps = ask["query"], ask["query"].startswith("timestamp(")
        selector = query.removeprefix("timestamp(").removesuffix(")") if stamps else query
        start, end, step = (_ms(ask[key]) for key in ("start", "end", "step"))
        found = []
        for labels, points in self._selected(selector):
            shown: Points = []
            for at in range(start, end + 1, step):
                before = [p for p in points if at - _LOOK_BACK_MS < p[0] <= at]
                if before:
                    shown.append((at, before[-1][0] / 1000 if stamps else before[-1][1]))
            kept = {k: v for k, v in labels.items() if not stamps or k != "__name__"}
            found.append((kept, shown))
        return found

    def _matrix(self, found: list[tuple[Labels, Points]]) -> tuple[int, Any]:
        if sum(len(points) for _, points in found) > self.most_points:
            return 422, None
        result = [
            {"metric": labels, "values": [[at / 1000, _text(value)] for at, value in points]}
            for labels, points in found
            if points
        ]
        return 200, {"resultType": "matrix", "result": result}

    def _selected(self, selector: str) -> list[tuple[Labels, Points]]:
        matchers = _MATCHER.findall(selector)
        assert matchers, selector

        def fits(labels: Labels) -> bool:
            return all(
                re.fullmatch(value, labels.get(name, ""))
                if how == "=~"
                else labels.get(name, "") == json.loads(f'"{value}"')
                for name, how, value in matchers
            )

        return [(labels, points) for labels, points in self.series if fits(labels)]


class _Handler(BaseHTTPRequestHandler):
    fake: FakePrometheus
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        ask = dict(parse_qsl(parts.query))
        self.fake.asked.append((parts.path, ask))
        if self.fake.faults:
            self.fake.faults.pop(0)(self)
            return
        status, data = self.fake.answer(parts.path, ask)
        said = {"status": "success", "data": data} if status == 200 else {"status": "error"}
        send(self, status, json.dumps(said).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    """One answer."""
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def fault(status: int, body: bytes = b"", **headers: str) -> Fault:
    """An answer of this status and body."""
    return lambda handler: send(handler, status, body, **headers)


@contextmanager
def fake_prometheus(series: list[tuple[Labels, Points]]) -> Iterator[FakePrometheus]:
    """A running server."""
    fake = FakePrometheus(series)
    handler = type("Handler", (_Handler,), {"fake": fake})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    fake.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _ms(text: str) -> int:
    return round(float(text) * 1000)


def _text(value: float) -> str:
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(str(value), str(value))
