"""Settings of all tests: none is a measurement of time, and none leaves a leak behind."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

_MAKERS = ("sanitize", "traces", "results", "exports", "shape", "workload", "cli", "demo")


def pytest_configure(config: pytest.Config) -> None:
    """Name the mark of tests that spoil on purpose what may be shared, and hear Ctrl-C."""
    config.addinivalue_line("markers", "planted: leaves something for the privacy check to find")
    # A shell's background jobs ignore Ctrl-C, and so would every program a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _nothing_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the privacy check on what a test of sanitizer, importers, exporters and tools leaves."""
    made_by = request.module.__name__.removeprefix("test_").partition("_")[0]
    planted = request.node.get_closest_marker("planted") is not None
    if made_by not in _MAKERS or planted or "tmp_path" not in request.fixturenames:
        yield
        return
    folder = request.getfixturevalue("tmp_path")
    yield
    from leftovers import findings  # most tests need no polars

    assert [] == findings(folder)
