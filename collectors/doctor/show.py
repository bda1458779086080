"""A diagnosis as lines for a terminal, whatever is in the names it holds. Pure."""

import textwrap
from collections.abc import Iterator
from typing import Any

from collectors.doctor.finding import Diagnosis
from replay.strict import printable

_MOST = 2000
_TOPIC = 10
_NARROWEST = 40


def lines(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    """The headline, a finding a paragraph, then what to do next, which is never broken."""
    yield from _wrapped(diagnosis.headline, "", width)
    if diagnosis.findings:
        yield ""
    for finding in diagnosis.findings:
        yield from _wrapped(finding.text, f"{finding.level:<5}{finding.topic:<{_TOPIC}}", width)
    if diagnosis.steps:
        yield from ("", "next:")
    for step in diagnosis.steps:
        yield from _command(printable(step, _MOST), width)


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """The same as one JSON object."""
    findings = [
        {"level": str(f.level), "topic": f.topic, "text": printable(f.text, _MOST)}
        for f in diagnosis.findings
    ]
    return {
        **diagnosis.facts,
        "code": diagnosis.code,
        "headline": printable(diagnosis.headline, _MOST),
        "findings": findings,
        "next": list(diagnosis.steps),
    }


def _command(step: str, width: int) -> Iterator[str]:
    """A command that can be copied: broken only between options, where a shell lets it."""
    line, *options = [step] if "'" in step or step.startswith("#") else step.split(" --")
    line = f"  {line}"
    for option in options:
        longer = f"{line} --{option}"
        if len(longer) + 2 > width:
            yield f"{line} \\"
            longer = f"      --{option}"
        line = longer
    yield line


def _wrapped(text: str, begin: str, width: int) -> list[str]:
    return textwrap.wrap(
        printable(text, _MOST),
        max(width, _NARROWEST),
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_on_hyphens=False,
    )
