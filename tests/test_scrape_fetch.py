"""One scrape: every fault has the one outcome that it is documented with."""

import asyncio
import gzip
import ssl
from pathlib import Path

import fault_server as faults
import pytest
from fault_server import FaultServer, fault_server
from ports import held

from collectors.scrape.credentials import TOKEN_VARIABLE, Credentials
from collectors.scrape.fetch import Fetcher
from collectors.scrape.outcome import Fetched, Outcome
from collectors.scrape.probe import Probed, probe
from collectors.scrape.urls import urls_of
from replay.errors import InputError

BIG = 2**18
GZIP = "Content-Encoding: gzip\r\n"
BROTLI = "Content-Encoding: br\r\n"
ELSEWHERE = "Location: http://example.invalid/metrics\r\n"


def scrape(
    url: str, credentials: Credentials | None = None, timeout_us: int = 20_000_000
) -> Fetched:
    """One scrape with a client of its own."""

    async def once() -> Fetched:
        fetcher = Fetcher(urls_of(url), credentials or Credentials(), timeout_us, BIG)
        async with fetcher:
            return await fetcher.page()

    return asyncio.run(once())


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        pytest.param(faults.counting, "ok", id="a page"),
        pytest.param(
            faults.fixed(gzip.compress(faults.page(1)), headers=GZIP), "ok", id="a compressed page"
        ),
        pytest.param(faults.fixed(faults.page(1), length=False), "ok", id="a page without length"),
        pytest.param(faults.fixed(b""), "empty", id="nothing"),
        pytest.param(faults.fixed(b" \n"), "empty", id="blanks"),
        pytest.param(faults.hang, "timeout", id="no answer"),
        pytest.param(faults.a_byte_now_and_then, "timeout", id="a byte now and then"),
        pytest.param(faults.slow_headers, "timeout", id="headers now and then"),
        pytest.param(faults.fixed(b"no", status="401 Unauthorized"), "http_401", id="401"),
        pytest.param(faults.fixed(b"no", status="403 Forbidden"), "http_403", id="403"),
        pytest.param(faults.fixed(b"no", status="404 Not Found"), "http_404", id="404"),
        pytest.param(faults.fixed(b"no", status="429 Slow Down"), "http_4xx", id="429"),
        pytest.param(faults.fixed(b"no", status="500 Oops"), "http_500", id="500"),
        pytest.param(faults.fixed(b"no", status="503 Later"), "http_503", id="503"),
        pytest.param(faults.fixed(b"no", status="502 Bad Gateway"), "http_5xx", id="502"),
        pytest.param(
            faults.fixed(b"", status="302 Found", headers=ELSEWHERE), "redirect", id="redirect"
        ),
        pytest.param(faults.a_gigabyte, "too_large", id="a gigabyte"),
        pytest.param(faults.fixed(faults.bomb(2**26), headers=GZIP), "too_large", id="gzip bomb"),
        pytest.param(faults.fixed(b"garbage", headers=GZIP), "bad_encoding", id="no gzip"),
        pytest.param(faults.fixed(b"x", headers=BROTLI), "bad_encoding", id="brotli"),
        pytest.param(
            faults.fixed(gzip.compress(faults.page(1))[:-9], headers=GZIP),
            "truncated",
            id="half a gzip",
        ),
        pytest.param(faults.cut_by_length, "truncated", id="cut page"),
        pytest.param(faults.cut_in_a_chunk, "truncated", id="cut chunk"),
        pytest.param(faults.goodbye, "disconnected", id="disconnected"),
        pytest.param(faults.not_http, "bad_http", id="not HTTP"),
    ],
)
def test_every_fault_has_one_outcome(answer: faults.Answer, outcome: str) -> None:
    """Whatever a server does, a scrape ends within its deadline and is called by its name."""
    with fault_server() as server:
        server.answer = answer
        # An answer that never comes is not waited for; any other may be slow on a busy machine.
        timeout_us = 400_000 if outcome == "timeout" else 20_000_000
        assert outcome == scrape(server.url, timeout_us=timeout_us).outcome


def test_nobody_listening_is_refused() -> None:
    """A port without a server is told from a server without an answer."""
    with held() as port:
        assert Outcome.REFUSED == scrape(f"http://127.0.0.1:{port}").outcome


def test_a_name_nobody_has_is_dns() -> None:
    """Names under .invalid never resolve."""
    assert Outcome.DNS == scrape("http://nobody.invalid:8000").outcome


def test_a_server_without_tls_is_a_tls_failure() -> None:
    """An https address of a plain server is not taken for one that is down."""
    with fault_server() as server:
        assert Outcome.TLS == scrape(server.url.replace("http:", "https:")).outcome


def test_the_request_says_what_it_wants() -> None:
    """Text is preferred, OpenMetrics accepted, gzip allowed; the token goes nowhere else."""
    with fault_server() as server:
        scrape(server.url)
        request = server.requests[0].lower()
    assert "accept: text/plain;version=0.0.4;q=1,application/openmetrics-text" in request
    assert "accept-encoding: gzip\r\n" in request
    assert "authorization" not in request


def test_a_redirect_is_not_followed_and_gets_no_token(tmp_path: Path) -> None:
    """Not even on the same host: only the other spelling of /metrics is tried."""
    token = tmp_path / "token"
    token.write_text("sesame-9182\n")
    with fault_server() as server, fault_server() as other:
        server.answer = faults.fixed(
            b"", status="302 Found", headers=f"Location: {other.url}/metrics\r\n"
        )
        found = scrape(server.url, Credentials(token_file=token))
        assert Outcome.REDIRECT == found.outcome
        assert [] == other.requests
        assert all("Bearer sesame-9182" in request for request in server.requests)


def test_the_metrics_page_is_found_from_either_address() -> None:
    """The base address, the page's, and the page's with a slash lead to the same page."""
    with fault_server() as server:
        for ending in ("", "/", "/metrics", "/metrics/"):
            assert Outcome.OK == scrape(server.url + ending).outcome, ending


def test_the_engine_is_asked_who_it_is() -> None:
    """The release is known where it is told, and unknown where it is not."""

    async def ask(url: str) -> Probed:
        async with Fetcher(urls_of(url), Credentials(), 20_000_000) as fetcher:
            return await probe(fetcher)

    with fault_server() as server:
        assert "0.32.0" == asyncio.run(ask(server.url)).version
        server.version = None
        assert Probed() == asyncio.run(ask(server.url))


def test_a_question_that_hangs_costs_its_own_answer_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The release is known although /v1/models never answers, long before a scrape's deadline."""
    monkeypatch.setattr("collectors.scrape.probe._DEADLINE_S", 0.2)

    async def ask() -> Probed:
        async with Fetcher(urls_of("http://127.0.0.1:1"), Credentials(), 60_000_000) as fetcher:

            async def get(url: str, most_bytes: int) -> Fetched:
                del most_bytes
                if url.endswith("/version"):
                    return Fetched(Outcome.OK, 200, None, b'{"version": "0.32.0"}')
                await asyncio.sleep(3600)
                raise AssertionError

            monkeypatch.setattr(fetcher, "get", get)
            async with asyncio.timeout(10):
                return await probe(fetcher)

    assert Probed("0.32.0") == asyncio.run(ask())


def test_a_token_is_read_again_for_every_scrape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replaced file counts from the next scrape on, and a missing one is an outcome."""
    token = tmp_path / "token"
    token.write_text("first-1111")
    credentials = Credentials(token_file=token)
    with fault_server() as server:
        scrape(server.url, credentials)
        token.write_text("second-2222\n")
        scrape(server.url, credentials)
        token.unlink()
        assert Outcome.CREDENTIALS == scrape(server.url, credentials).outcome
        monkeypatch.setenv(TOKEN_VARIABLE, "third-3333")
        scrape(server.url, Credentials(token_variable=TOKEN_VARIABLE))
        sent = [r.split("Bearer ")[1].split("\r\n")[0] for r in server.requests]
    assert ["first-1111", "second-2222", "third-3333"] == sent
    assert "1111" not in repr(credentials)


@pytest.mark.parametrize("text", ["", "two words", "line\nbreak", "ümlaut"])
def test_a_token_that_could_break_a_header_is_refused(tmp_path: Path, text: str) -> None:
    """The message says where, and never what."""
    token = tmp_path / "token"
    token.write_text(text)
    with pytest.raises(InputError, match="must hold one token of printable ASCII") as caught:
        Credentials(token_file=token).headers()
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@host:1",
        "http://host/metrics?token=hunter2",
        "http://host/#hunter2",
        "ftp://hunter2",
        "hunter2",
        "http://ho st:1/hunter2",
        "http://host:hunter2",
        "http://[hunter2",
    ],
)
def test_an_address_that_could_hold_a_secret_is_refused_and_not_shown(url: str) -> None:
    """Secrets come from files: an address ends up in process lists."""
    with pytest.raises(InputError, match="options: url must") as caught:
        urls_of(url)
    assert "hunter2" not in str(caught.value)


def test_files_for_tls_are_checked_at_the_start(tmp_path: Path) -> None:
    """A certificate file without a certificate is a mistake in the options."""
    wrong = tmp_path / "ca.pem"
    wrong.write_text("nothing")
    for credentials in (
        Credentials(ca_file=wrong),
        Credentials(cert_file=wrong),
        Credentials(key_file=wrong),
    ):
        with pytest.raises(InputError, match=r"ca\.pem: "):
            credentials.tls()


def test_a_replaced_certificate_is_read_at_the_next_scrape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half replaced files wait; what has not changed is not read again."""
    cert, read = tmp_path / "cert.pem", []
    cert.write_text("old")

    def tls(credentials: Credentials) -> ssl.SSLContext:
        assert credentials.cert_file is not None
        text = credentials.cert_file.read_text()
        if text == "half":
            raise InputError(str(cert), "", "must hold a client certificate")
        read.append(text)
        return ssl.create_default_context()

    monkeypatch.setattr(Credentials, "tls", tls)

    async def run(url: str) -> list[Outcome]:
        outcomes = []
        async with Fetcher(urls_of(url), Credentials(cert_file=cert), 20_000_000) as fetcher:
            for text in (None, "half", "newer", None):
                if text:
                    cert.write_text(text)
                outcomes.append((await fetcher.page()).outcome)
        return outcomes

    with fault_server() as server:
        outcomes = asyncio.run(run(server.url.replace("http:", "https:")))
    assert ["old", "newer"] == read
    assert [Outcome.TLS] * 4 == outcomes


def test_faults_are_not_counted_as_pages() -> None:
    """The server of these tests counts only what it sent whole."""
    with fault_server() as server:
        server.answer = faults.goodbye
        scrape(server.url)
        assert 0 == server.served
        assert isinstance(server, FaultServer)
