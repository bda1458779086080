"""The HTML report in a real browser: drawn, quiet, offline, and its choices show SQL's numbers."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from chromium import Page, page
from pages import ROOT, Judged, demo, hostile, judged
from test_gate_boundary import EDGE, both, gate_of, sides

from analysis.page import panels
from analysis.page.build import page_of
from preempt.boundary import replayer

pytestmark = pytest.mark.browser

PICTURES = ROOT / "build" / "screenshots"
WIDTHS = (400, 900, 1600)


@cache
def document(made: Callable[[], Judged]) -> str:
    """The page of an answer, its charts bundled once."""
    found = made()
    return page_of(found.data, found.report, found.sha256)


def visit(
    tmp_path: Path, what: Callable[[Page], Awaitable[Any]], made: Callable[[], Judged] = demo
) -> Page:
    """Open a page from a disk, do something there, and give what the browser said meanwhile."""
    path = tmp_path / "report.html"
    path.write_text(document(made), encoding="utf-8")

    async def run() -> Page:
        async with page(tmp_path / "profile") as tab:
            await tab.open(path)
            await what(tab)
            assert [] == tab.problems()
            assert [path.as_uri()] == [u for u in tab.requests() if not u.startswith("data:")]
            return tab

    return asyncio.run(run())


async def numbers(tab: Page) -> dict[str, list[str]]:
    """The shown table, a list of cells per row."""
    found: dict[str, list[str]] = await tab.value(
        "Object.fromEntries([...document.querySelectorAll('#numbers tbody tr')].map("
        "r => [r.dataset.number, [...r.querySelectorAll('td')].map(c => c.textContent)]))"
    )
    return found


def sql_numbers(run_id: str, where: str) -> list[str]:
    """The same numbers by a query of its own."""
    row = (
        demo()
        .db.execute(
            f"""
        SELECT count(*), count(*) FILTER (num_preemptions > 0), sum(num_preemptions),
            count(*) FILTER (num_preemptions > 2)
        FROM measured_requests WHERE run_id = '{run_id}' AND {where}
        """  # noqa: S608 - own text
        )
        .fetchone()
    )
    assert row is not None
    return [f"{n:,}" for n in row]


SHOWN = ("requests", "preempted", "preemptions", "preempted_too_often")


def test_every_figure_is_drawn_without_a_word_from_the_browser(tmp_path: Path):
    """Each chart is an SVG with marks and a text beside it; nothing is logged or loaded."""

    async def look(tab: Page) -> None:
        names = set(panels.specs(demo().report))
        drawn = await tab.value(
            "[...document.querySelectorAll('.chart')].filter(c => c.querySelector("
            "'svg path, svg text')).map(c => c.id.slice(6))"
        )
        assert names == set(drawn)
        texts = await tab.value(
            "[...document.querySelectorAll('.summary')].map(p => p.textContent)"
        )
        assert len(names) == len(texts)
        assert all(any(c.isdigit() for c in t) for t in texts)
        assert await tab.value("document.querySelectorAll('canvas').length") == 0

    visit(tmp_path, look)


def test_a_choice_changes_numbers_and_charts_to_those_of_sql(tmp_path: Path):
    """Slice and run choose what table and charts show, and every number is the query's."""

    async def look(tab: Page) -> None:
        found = await numbers(tab)
        for k, run_id in enumerate(("base-1", "cand-80")):
            assert sql_numbers(run_id, "true") == [found[name][k] for name in SHOWN]
        before = await tab.value("document.getElementById('chart-curves-baseline').innerHTML")
        await tab.choose("slice", "1")
        found = await numbers(tab)
        part = "priority <= 0 AND prompt_tokens <= 512"
        for k, run_id in enumerate(("base-1", "cand-80")):
            assert sql_numbers(run_id, part) == [found[name][k] for name in SHOWN]
        curve = "document.getElementById('chart-curves-baseline').innerHTML"
        assert before != await tab.value(curve)
        await tab.choose("scope", "1")
        found = await numbers(tab)
        assert [sql_numbers("cand-80", part)] == [
            list(column) for column in zip(*(found[name] for name in SHOWN), strict=True)
        ]
        bars = await tab.value("document.getElementById('summary-statuses').textContent")
        assert f"cand-80 (candidate): {found['ok'][0]} ok." == bars
        assert await tab.value("document.getElementById('panel-curves-baseline').hidden")
        await tab.choose("metric", "e2e")
        assert before != await tab.value(curve)

    visit(tmp_path, look)


def test_a_request_and_a_preemption_can_be_picked(tmp_path: Path):
    """The detail is the picked request's; the bars are the picked event's."""

    async def look(tab: Page) -> None:
        data = demo().data
        index = next(k for k, r in enumerate(data["requests"]) if r["repeated"])
        await tab.choose("request", str(index))
        detail = await tab.value("document.getElementById('request-detail').textContent")
        assert data["requests"][index]["request_id"] in detail
        assert "✕ preempted too often" in detail
        event = data["measured_preemptions"][7]
        await tab.choose("event", "m7")
        told = await tab.value("document.getElementById('summary-conservation-tokens').textContent")
        assert f"{event['computed_tokens']} tokens are computed again" in told
        await tab.choose("event", "e0")
        told = await tab.value("document.getElementById('summary-conservation-tokens').textContent")
        assert told.startswith("modelled: ")

    visit(tmp_path, look)


async def point(tab: Page, selector: str) -> tuple[float, float]:
    """Scroll to an element and give its middle."""
    x, y = await tab.value(
        f"(() => {{ const e = document.querySelector({selector!r});"
        " e.scrollIntoView({block: 'center', behavior: 'instant'});"
        " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
    )
    return x, y


async def mouse(tab: Page, kind: str, at: tuple[float, float], **more: Any) -> None:
    """One event of the mouse."""
    await tab.send("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], **more)


def test_a_mark_tells_of_itself_and_is_picked_by_a_click(tmp_path: Path):
    """The pointer on a request shows its name as text, a click shows its numbers."""

    async def look(tab: Page) -> None:
        mark = "#chart-fairness-baseline .mark-symbol.role-mark path:last-of-type"
        at = await point(tab, mark)
        await mouse(tab, "mouseMoved", at)
        told = await tab.value(
            "new Promise(done => { const look = () => {"
            " const t = document.querySelector('#vg-tooltip-element.visible');"
            " t ? done(t.textContent) : setTimeout(look, 20); }; look(); })"
        )
        name = await tab.value(
            "document.querySelector('#vg-tooltip-element td:not(.key)').textContent"
        )
        assert told.startswith(f"request{name}run")
        for kind in ("mousePressed", "mouseReleased"):
            await mouse(tab, kind, at, button="left", clickCount=1)
        detail = await tab.value("document.querySelector('#request-detail caption').textContent")
        assert detail.startswith(f"Request {name} in ")
        assert 4 == await tab.value("document.scripts.length")

    visit(tmp_path, look, hostile)


def edge() -> Judged:
    """A pair whose verdict a little more load would change, as modelled."""
    runs = [run for side in sides([1.0]) for run in side]
    return judged(gate_of(steps=EDGE), runs, both(), replayer())


def test_a_boundary_is_drawn_with_its_crossing(tmp_path: Path):
    """The strip is there, and its sentence has every estimate, its side and the bracket."""

    async def look(tab: Page) -> None:
        marks = await tab.value("document.querySelectorAll('#chart-boundary-0 svg path').length")
        assert marks >= 3
        told = await tab.value("document.getElementById('summary-boundary-0').textContent")
        assert "times 1: +0.34 %, ✓ within the limit" in told
        assert "times 1.4: +102 %, ✕ beyond the limit. Crosses the limit between x 1.34" in told

    visit(tmp_path, look, edge)


def test_hostile_names_are_shown_and_do_nothing(tmp_path: Path):
    """Markup in names runs nowhere: no dialog, no element, no complaint of the policy."""

    async def look(tab: Page) -> None:
        assert 4 == await tab.value("document.scripts.length")
        await tab.choose("scope", "1")
        for index in range(0, 40, 8):
            await tab.choose("request", str(index))
        assert 4 == await tab.value("document.scripts.length")
        assert await tab.value("document.documentElement.scrollWidth <= innerWidth")
        assert not [e for e in tab.events if e["method"] == "Page.javascriptDialogOpening"]
        for width in WIDTHS:
            await tab.size(width)
            assert await tab.value("document.documentElement.scrollWidth <= innerWidth"), width

    visit(tmp_path, look, hostile)


def test_every_control_is_reached_by_keyboard_and_has_a_name(tmp_path: Path):
    """Tab goes to the skip link first, and the accessibility tree names every control."""

    async def look(tab: Page) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            await tab.send("Input.dispatchKeyEvent", type=kind, key="Tab", windowsVirtualKeyCode=9)
        assert "Skip to the verdict" == await tab.value("document.activeElement.textContent")
        tree = (await tab.send("Accessibility.getFullAXTree"))["nodes"]
        named = [
            (n["role"]["value"], n.get("name", {}).get("value"))
            for n in tree
            if not n["ignored"] and "role" in n
        ]
        controls = [(r, n) for r, n in named if r in ("combobox", "img", "image", "link", "table")]
        assert all(n for _, n in controls), controls
        pictures = [n for r, n in controls if r in ("img", "image")]
        assert len(panels.specs(demo().report)) == len(pictures)
        assert {"combobox", "link", "table"} <= {r for r, _ in controls}
        assert ("heading", "? inconclusive: blocks-48-to-80") in named

    visit(tmp_path, look)


def test_it_fits_three_widths_two_schemes_and_paper(tmp_path: Path):
    """Nothing is wider than the window; the pictures are kept for whoever looks."""
    pictures: dict[Path, bytes] = {}

    async def look(tab: Page) -> None:
        for width in WIDTHS:
            await tab.size(width)
            for scheme in ("light", "dark"):
                await tab.media(scheme=scheme)
                assert await tab.value("document.documentElement.scrollWidth <= innerWidth"), width
                pictures[PICTURES / f"gate-{width}-{scheme}.png"] = await tab.picture()
        await tab.media(scheme="dark", medium="print")
        assert "rgb(255, 255, 255)" == await tab.value(
            "getComputedStyle(document.body).backgroundColor"
        )
        await tab.size(760)
        pictures[PICTURES / "gate-print.png"] = await tab.picture()

    visit(tmp_path, look)
    assert 7 == len(pictures)
    PICTURES.mkdir(parents=True, exist_ok=True)
    for path, picture in pictures.items():
        path.write_bytes(picture)
