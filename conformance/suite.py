"""Every case through both sides: what they differ in, and what that proves."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from conformance.cases import Case
from conformance.compare import Difference, Result, compare
from conformance.exercised import Coverage
from conformance.explain import by_option, explain

Answer = Callable[[Case], Result]
Progress = Callable[[int, Case, Result], None]
_NAMED = 10  # diverging cases that are named


@dataclass
class Report:
    """What came of a suite; `pairs` holds each case with vLLM's result."""

    release: str
    rule: str
    coverage: Coverage
    pairs: list[tuple[Case, Result]] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    @property
    def smallest(self) -> Difference:
        """The difference that is easiest to look into."""
        return min(self.differences, key=lambda d: (len(d.case["requests"]), d.tick or 0))

    def summary(self, answer: Answer) -> str:
        """What a person reads: the coverage, then that nothing differs, or what does."""
        cases, requests = len(self.pairs), sum(len(case["requests"]) for case, _ in self.pairs)
        preemptions = sum(len(result["preemptions"]) for _, result in self.pairs)
        what = f"rule {self.rule} against the scheduler of vLLM {self.release}"
        size = f"{cases:,} cases, {requests:,} requests, {preemptions:,} preemptions"
        lines = [self.coverage.table(), "", f"{what}: {size}"]
        if not self.differences:
            return "\n".join([*lines, "no difference"])
        names = [difference.case["name"] for difference in self.differences]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        lines.append(f"{len(names):,} cases differ: {', '.join(names[:_NAMED])}{more}")
        diverging = [difference.case for difference in self.differences]
        lines += [f"  {line}" for line in by_option(diverging, [case for case, _ in self.pairs])]
        return "\n".join([*lines, "", "the smallest of them:", explain(self.smallest, answer)])


def run_suite(
    answer: Answer,
    cases: Iterable[Case],
    report: Report,
    progress: Progress = lambda *_: None,
) -> Report:
    """Ask vLLM for each case, replay it, and add what came of it to the report."""
    for case in cases:
        result = answer(case)
        report.pairs.append((case, result))
        report.coverage.add(case, result)
        if (difference := compare(case, result)) is not None:
            report.differences.append(difference)
        progress(len(report.pairs), case, result)
    return report
