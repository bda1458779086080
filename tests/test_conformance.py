"""The conformance harness without vLLM: kept results, generated cases, and its own honesty."""

import dataclasses
import gzip
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner

from conformance import __main__ as command
from conformance import drive, expected
from conformance.cases import FEATURES, features_of, generate, overtaken, within
from conformance.compare import as_result, compare, first_difference, inputs, our_events, shortened
from conformance.drive import Engine, EngineDied
from conformance.engine import ROWS
from conformance.exercised import Coverage, exercised
from conformance.explain import arrivals_of, by_option, explain, our_state
from conformance.install import Environment
from conformance.suite import Report, run_suite
from conformance.traces import trace_cases
from replay.config import ENGINE_KEYS
from replay.errors import InputError, Unfinished
from replay.rules import CHECKED, Rule

RELEASES = [name.removeprefix("vllm-") for name in CHECKED]
KEPT = {release: expected.read_expected(release) for release in RELEASES}
PAIRS = [
    pytest.param(case, result, id=f"{release}-{case['name']}")
    for release in RELEASES
    for case, result in KEPT[release]
]
# `full_isl` and `watermark` say which options there are, not what is decided.
FLAGS = [
    field.name
    for field in dataclasses.fields(Rule)
    if field.type is bool and field.name not in {"full_isl", "watermark"}
]
CASE, RESULT = max(KEPT["0.32.0"], key=lambda pair: len(pair[1]["preemptions"]))


def answer_kept(case: dict[str, Any]) -> dict[str, Any]:
    """What vLLM answered, with a state where one is asked for."""
    kept = next(r for c, r in KEPT["0.32.0"] if c["name"] == case["name"])
    ticks = case.get("trace_ticks", [None])
    running = [{"request_id": "a", "computed": 3, "generated": 1, "placeholders": 0}]
    state = {"tick": ticks[0], "free": 7, "running": running, "waiting": []}
    return kept | {"states": [state | {"when": when} for when in ("arrived", "end")]}


def new_report(release: str = "0.32.0") -> Report:
    """Nothing run yet."""
    return Report(release, f"vllm-{release}", Coverage(features_of(release)))


class TestKeptResults:
    """Results of vLLM's own class that are kept beside the code."""

    @pytest.mark.parametrize(("case", "result"), PAIRS)
    def test_our_replay_does_what_vllm_did(
        self, case: dict[str, Any], result: dict[str, Any]
    ) -> None:
        """Every row of a kept result comes out of our replay, in order."""
        assert compare(case, result) is None

    @pytest.mark.parametrize("release", RELEASES)
    def test_they_exercise_every_option_and_pair(self, release: str) -> None:
        """Each feature and pair of the release has its share of preemptions in the kept cases."""
        coverage = Coverage(features_of(release))
        for case, result in KEPT[release]:
            coverage.add(case, result)
        assert [] == coverage.short_of(expected.LEAST)

    @pytest.mark.parametrize("release", RELEASES)
    @pytest.mark.parametrize("flag", FLAGS)
    def test_a_rule_that_decides_otherwise_fails_on_them(
        self, release: str, flag: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each way in which releases decide differently shows in some kept case."""
        rule = CHECKED[f"vllm-{release}"]
        wrong = dataclasses.replace(rule, **{flag: not getattr(rule, flag)})
        monkeypatch.setitem(CHECKED, rule.name, wrong)
        assert any(compare(case, result) for case, result in KEPT[release])

    @pytest.mark.parametrize("release", RELEASES)
    def test_a_replay_in_the_order_of_arrival_fails_where_requests_came_late(
        self, release: str
    ) -> None:
        """The engine's arrival times decide in some kept cases, and the class says how."""
        late = [(case, result) for case, result in KEPT[release] if arrivals_of(case)]
        assert expected.OVERTAKEN == len(late)
        for case, result in late:
            assert compare(expected.in_workload_order(case), result) is not None
        assert late == expected.choose_overtaken(late)

    @pytest.mark.parametrize("release", RELEASES)
    def test_they_are_results_of_their_release(self, release: str) -> None:
        """The name of a file is the release that answered."""
        assert {release} == {result["release"] for _, result in KEPT[release]}

    def test_the_ways_releases_differ_are_known(self) -> None:
        """The flags of a rule are found, so the test above is not empty."""
        assert {"threshold_spares_lone_request", "nameless_blocks_first"} < set(FLAGS)

    @pytest.mark.parametrize("release", RELEASES)
    def test_writing_them_again_gives_the_same_bytes(
        self, release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing of the day or the machine is in the file."""
        kept = expected.path_of(release).read_bytes()
        monkeypatch.setattr(expected, "FOLDER", tmp_path)
        pairs = [(case, result | {"seconds": 1.5}) for case, result in KEPT[release]]
        assert expected.write_expected(release, pairs) == len(kept)
        written = expected.path_of(release).read_bytes()
        assert gzip.decompress(kept) == gzip.decompress(written)
        assert bytes(4) == written[4:8]  # gzip's time stamp

    def test_only_small_cases_that_add_something_are_chosen(self) -> None:
        """A case twice is kept once it is enough; one beyond the size never."""
        pair = (CASE, RESULT)
        enough = -(-expected.LEAST // len(RESULT["preemptions"]))
        chosen = expected.choose([pair] * (enough + 5), exercised(CASE, RESULT))
        assert [pair] * enough == chosen
        huge = CASE | {"note": "x" * expected.SIZE}
        assert [] == expected.choose([(huge, RESULT)], features_of("0.32.0"))


class TestGeneratedCases:
    """What the generator promises."""

    @pytest.mark.parametrize("release", RELEASES)
    def test_the_same_seed_gives_the_same_cases(self, release: str) -> None:
        """Cases depend on release, seed and number, on nothing else."""
        first = list(generate(release, 12, 5))
        assert first == list(generate(release, 12, 5))
        assert first[:6] == list(generate(release, 6, 5))
        assert first != list(generate(release, 12, 6))

    @pytest.mark.parametrize("release", RELEASES)
    def test_every_case_is_valid(self, release: str) -> None:
        """Our own validation accepts each: it fits the pool, the model and the limits."""
        for case in generate(release, 120, 3):
            workload, config = inputs(case)
            assert len(case["requests"]) == len(workload)
            assert f"vllm-{release}" == config.engine.rule

    @pytest.mark.parametrize("release", RELEASES)
    def test_late_requests_are_those_of_the_same_cases_under_priority(self, release: str) -> None:
        """Only the engine's arrival times are new; no two are equal, and some are inverted."""
        cases = {case["name"]: case for case in generate(release, 40, 3)}
        inverted = 0
        for late in overtaken(release, 40, 3):
            case = cases.pop(late["name"].removesuffix("-overtaken"))
            assert case == expected.in_workload_order(late) | {"name": case["name"]}
            arrivals = [r.engine_arrival_us for r in inputs(late)[0].requests]
            assert list(range(len(arrivals))) == sorted(arrivals)
            inverted += arrivals != sorted(arrivals)
        assert inverted > 5
        assert all("fcfs" == c["config"]["engine"]["scheduling_policy"] for c in cases.values())

    def test_every_option_of_the_profile_takes_more_than_one_value(self) -> None:
        """No key of [engine] is left out, and none but profile and rule is constant."""
        engines = [case["config"]["engine"] for case in generate("0.32.0", 120, 3)]
        assert set(ENGINE_KEYS["vllm-v1"]) == set().union(*engines)
        values = {key: {engine[key] for engine in engines} for key in ENGINE_KEYS["vllm-v1"]}
        assert {"profile", "rule"} == {key for key, found in values.items() if len(found) == 1}

    def test_options_a_release_lacks_are_left_out(self) -> None:
        """A 0.17.1 scheduler is never told of a watermark or a full-sequence reserve."""
        for case in generate("0.17.1", 30, 3):
            assert not {"watermark", "scheduler_reserve_full_isl"} & set(case["config"]["engine"])
        assert set(FEATURES) - {"watermark", "no-reserve"} == set(features_of("0.17.1"))

    def test_options_a_rule_does_not_know_are_held_still(self) -> None:
        """A newer release under an older rule runs without what that rule cannot follow."""
        engine = {"watermark": 0.1, "scheduler_reserve_full_isl": True, "block_size": 8}
        held = {"watermark": 0.0, "scheduler_reserve_full_isl": False, "block_size": 8}
        assert held == within(engine, "0.32.0", "vllm-0.17.1")
        assert {"block_size": 8} == within(engine, "0.17.1", "vllm-0.32.0")
        assert engine == within(engine, "0.32.0", "vllm-0.32.0")

    @pytest.mark.parametrize("release", RELEASES)
    def test_the_heads_of_the_traces_are_cases_too(self, release: str) -> None:
        """Three traces under five configurations each, all of them replayable."""
        cases = list(trace_cases(release, None))
        assert 15 == len(cases) == len({case["name"] for case in cases})
        for case in cases:
            inputs(case)

    def test_whole_traces_are_found_where_the_folder_has_them(self, tmp_path: Path) -> None:
        """A file of that name in the folder becomes one more case, the others are not missed."""
        head = Path(__file__).parent.parent / "fixtures/traces/azure-2023-conv-head.csv"
        (tmp_path / "AzureLLMInferenceTrace_conv.csv").write_bytes(head.read_bytes())
        whole = list(trace_cases("0.32.0", tmp_path))[15:]
        assert [("azure-2023-conv", 200)] == [(c["name"], len(c["requests"])) for c in whole]


class TestComparison:
    """A comparison that could not fail would prove nothing."""

    @pytest.mark.parametrize("table", ROWS)
    def test_any_changed_number_is_a_difference(self, table: str) -> None:
        """Each column of each row counts, and the difference names table and tick."""
        ours = as_result(our_events(*inputs(CASE)))
        for column in range(len(ROWS[table])):
            changed = deepcopy(RESULT)
            row = changed[table][-1]
            row[column] = row[column] + (1 if isinstance(row[column], int) else "x")
            found = first_difference(CASE, changed, ours)
            assert found is not None
            assert (table, RESULT[table][-1][0]) == (found.table, found.tick)
            assert (row, RESULT[table][-1]) == (found.vllm, found.ours)

    @pytest.mark.parametrize("table", ROWS)
    def test_a_row_too_few_or_too_many_is_a_difference(self, table: str) -> None:
        """Neither side may have a row of its own."""
        for changed, lacking in ((RESULT[table][:-1], "vllm"), ([*RESULT[table]] * 2, "ours")):
            found = compare(CASE, RESULT | {table: changed})
            assert found is not None
            assert (table, None) == (found.table, getattr(found, lacking))

    def test_the_earliest_tick_comes_first_whatever_the_table(self) -> None:
        """A late preemption does not hide an early completion."""
        changed = deepcopy(RESULT)
        changed["preemptions"][-1][3] += 1
        changed["completions"][0][2] += 1
        found = compare(CASE, changed)
        assert found is not None
        assert ("completions", RESULT["completions"][0][0]) == (found.table, found.tick)

    @pytest.mark.parametrize("key", ["unfinished", "preemption_counts"])
    def test_who_was_left_and_how_often_each_was_preempted_count(self, key: str) -> None:
        """What no row shows is compared all the same."""
        changed = {"unfinished": ["somebody"], "preemption_counts": {"somebody": 1}}[key]
        found = compare(CASE, RESULT | {key: changed})
        assert found is not None
        assert (key, None, changed) == (found.table, found.tick, found.vllm)

    def test_an_error_of_vllm_is_a_difference(self) -> None:
        """A case that vLLM could not schedule proves nothing."""
        found = compare(CASE, RESULT | {"error": "AssertionError: no"})
        assert found is not None
        assert ("error", "AssertionError: no") == (found.table, found.vllm)

    def test_stopping_where_vllm_finishes_is_a_difference(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A diagnosis of ours counts only where vLLM does not finish either."""

        def stop(*_: object) -> None:
            raise Unfinished("round and round")

        monkeypatch.setattr("conformance.compare.our_events", stop)
        found = compare(CASE, RESULT)
        assert found is not None
        assert ("stopped", "round and round") == (found.table, found.ours)

    def test_a_case_that_never_ends_is_compared_up_to_an_earlier_tick(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where both sides stop, what they did until half of the ticks still has to be equal."""
        asked = []

        def sometimes(workload: Any, config: Any) -> Any:
            asked.append(config.limits.max_ticks)
            if len(asked) == 1:
                raise Unfinished("round and round")
            return our_events(workload, config)

        ticks = 2 * (RESULT["completions"][-1][0] - 1)
        limits = CASE["config"]["limits"] | {"max_ticks": ticks}
        endless = CASE | {"config": CASE["config"] | {"limits": limits}}
        monkeypatch.setattr("conformance.compare.our_events", sometimes)
        never = deepcopy(RESULT) | {"unfinished": [RESULT["completions"][-1][1]]}
        assert compare(endless, never) is None
        assert [ticks, ticks // 2] == asked
        _, cut = shortened(endless, never)
        assert len(RESULT["completions"]) > len(cut["completions"]) > 0
        cut["completions"][-1][2] += 1  # a row of `never` too
        asked.clear()
        assert compare(endless, never) is not None


class TestExplanation:
    """What a person reads when something differs."""

    def test_both_sides_of_the_first_diverging_tick_are_shown(self) -> None:
        """Rows by column name, then both queues and the free blocks before and after the tick."""
        changed = deepcopy(RESULT)
        changed["preemptions"][0][3] += 1
        difference = compare(CASE, changed)
        assert difference is not None
        text = explain(difference, answer_kept)
        tick, freed = RESULT["preemptions"][0][0], RESULT["preemptions"][0][3]
        assert f"preemptions differ first at tick {tick}\n" in text
        assert f"  vLLM: tick {tick}, victim " in text
        assert f"freed {freed + 1}," in text
        assert f"freed {freed}," in text
        assert (
            "  before it: 7 blocks free; running a(3 computed, 1 generated); waiting nobody" in text
        )
        assert f"our state at tick {tick}:\n  before it: " in text
        assert 4 == text.count(" blocks free; running ")

    def test_our_state_follows_from_the_ledger_alone(self) -> None:
        """After every preemption both queues are as long as the ledger says, in their order."""
        events = our_events(*inputs(CASE))
        priority = CASE["config"]["engine"]["scheduling_policy"] == "priority"
        seen = 0
        for place, event in enumerate(events, 1):
            if event["queue_position"] is not None:
                free, running, waiting = our_state(
                    events[:place], arrivals_of(CASE), priority=priority
                )
                assert event["capacity_blocks"] - event["occupied_blocks_after"] == free
                lengths = (event["active_requests"], event["queue_depth"])
                assert lengths == (len(running), len(waiting))
                who = f"{event['request_id']}({event['generated_tokens']} generated)"
                assert event["queue_position"] == waiting.index(who)
                seen += 1
        assert len(RESULT["preemptions"]) == seen

    def test_options_are_counted_with_and_without(self) -> None:
        """An option that all diverging cases have, and no other case, stands out."""
        cases = [case for case, _ in KEPT["0.32.0"]]
        diverging = [case for case in cases if case["config"]["engine"]["async_scheduling"]]
        lines = by_option(diverging, cases)
        counts = f"{len(diverging)} of {len(diverging)} with it, 0 of {len(cases) - len(diverging)}"
        assert f"{'async_scheduling':<32} {counts} without" in lines


class TestSuite:
    """Many cases, one verdict."""

    def test_no_difference_is_said_with_the_coverage(self) -> None:
        """Cases, requests and preemptions are counted, for each feature and pair too."""
        pairs = KEPT["0.32.0"][:4]
        report = run_suite(answer_kept, [case for case, _ in pairs], new_report())
        text = report.summary(answer_kept)
        assert [] == report.differences
        assert text.endswith("no difference")
        preemptions = sum(len(result["preemptions"]) for _, result in pairs)
        assert f"4 cases, {sum(len(c['requests']) for c, _ in pairs)} requests, " in text
        assert f"{preemptions:,} preemptions\n" in text
        assert 1 + len(report.coverage.cells) == len(report.coverage.table().splitlines())

    def test_the_smallest_diverging_case_is_explained(self) -> None:
        """Of several differences the one with the fewest requests is shown."""
        cases = [case for case, _ in KEPT["0.32.0"][:5]]

        def wrong(case: dict[str, Any]) -> dict[str, Any]:
            result = deepcopy(answer_kept(case))
            result["completions"][-1][2] += 1
            return result

        report = run_suite(wrong, cases, new_report())
        assert len(cases) == len(report.differences)
        smallest = min(cases, key=lambda case: len(case["requests"]))
        assert len(smallest["requests"]) == len(report.smallest.case["requests"])
        text = report.summary(wrong)
        assert "5 cases differ: " in text
        assert f"case {report.smallest.case['name']}: completions differ first" in text

    def test_an_option_that_changed_nothing_is_not_exercised(self) -> None:
        """On is not enough: a cache without a hit, a watermark that refused nobody do not count."""
        engine = CASE["config"]["engine"] | dict.fromkeys(FEATURES.values(), True)
        engine |= {"scheduling_policy": "priority", "scheduler_reserve_full_isl": False}
        case = CASE | {"config": {"engine": engine}}
        nothing = dict.fromkeys(RESULT["seen"], 0)
        assert ("async",) == exercised(case, {"seen": nothing})
        assert tuple(FEATURES) == exercised(case, {"seen": dict.fromkeys(nothing, 1)})


class TestCommand:
    """`python -m conformance`."""

    @pytest.fixture
    def run(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Run the command with kept answers in place of vLLM's."""

        class Fake:
            """An engine that answers from what is kept."""

            answers = staticmethod(answer_kept)

            def __init__(self, *_: object) -> None:
                self.answer = self.answers

            def __enter__(self) -> Self:
                return self

            def __exit__(self, *_: object) -> None:
                pass

        cases = [case for case, _ in KEPT["0.32.0"][:3]]
        here = Environment(Path(sys.executable), Path())
        monkeypatch.setattr(command, "environment", lambda *_, **__: here)
        monkeypatch.setattr(command, "Engine", Fake)
        monkeypatch.setattr(command, "generate", lambda *_: cases)
        monkeypatch.setattr(command, "overtaken", lambda *_: [])
        monkeypatch.setattr(command, "trace_cases", lambda *_: [])
        return Fake, lambda *options: CliRunner().invoke(command.main, options)

    def test_equal_sides_end_with_0(self, run: Any) -> None:
        """The last line says so."""
        done = run[1]("--release", "0.32.0")
        assert (0, "no difference") == (done.exit_code, done.stdout.splitlines()[-1])

    def test_a_difference_ends_with_1(self, run: Any) -> None:
        """What differs is printed."""
        fake, invoke = run
        fake.answers = staticmethod(lambda case: answer_kept(case) | {"unfinished": ["x"]})
        done = invoke("--release", "0.33.0")
        assert 1 == done.exit_code
        assert "rule vllm-0.32.0 against the scheduler of vLLM 0.33.0" in done.stdout
        assert "3 cases differ" in done.stdout

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--release", "newest"), "--release must be of the form X.Y.Z"),
            (("--release", "0.32.0", "--rule", "vllm-0.1.0"), "--rule must be one of vllm-0.17.1"),
        ],
    )
    def test_bad_options_end_with_2(self, run: Any, options: tuple[str, ...], said: str) -> None:
        """One line on standard error says which rule was broken."""
        done = run[1](*options)
        assert (2, "") == (done.exit_code, done.stdout)
        assert said in done.stderr

    def test_the_rule_is_the_nearest_checked_one(self) -> None:
        """A checked release has its own; a newer one is held against the newest before it."""
        assert "vllm-0.17.1" == command.rule_for("0.17.1", None)
        assert "vllm-0.32.0" == command.rule_for("0.40.0", None)
        assert "vllm-0.17.1" == command.rule_for("0.32.0", "vllm-0.17.1")
        with pytest.raises(InputError):
            command.rule_for("0.32", None)


class TestEngineProcess:
    """The process that holds vLLM."""

    def test_without_vllm_it_dies_with_its_last_words(self, tmp_path: Path) -> None:
        """The message says for which case and why."""
        with (
            pytest.raises(EngineDied, match=r"case one: .*No module named '(vllm|torch)"),
            Engine(Path(sys.executable), tmp_path) as engine,
        ):
            engine.answer({"name": "one"})

    def test_it_answers_line_by_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """One process serves all cases, and what it prints elsewhere is no answer."""
        script = tmp_path / "echo.py"
        script.write_text(
            "import sys\n"
            "for line in sys.stdin:\n"
            "    print('noise', file=sys.stderr)\n"
            "    print(line, end='', flush=True)\n"
        )
        monkeypatch.setattr(drive, "ENGINE", script)
        with Engine(Path(sys.executable), tmp_path) as engine:
            cases = [{"name": "a"}, {"name": "é中"}]
            assert cases == [engine.answer(case) for case in cases]
