"""The recorder in an engine: what it notes, and that the engine never notices it."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter, deque
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collectors.spool import (
    Admit,
    Arrive,
    Dropped,
    End,
    Finish,
    Header,
    Preempt,
    Request,
    Resume,
    Step,
    list_parts,
    read_header,
    read_part,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "collectors" / "recorder"))

from preemption_ledger_recorder import plugin, session
from preemption_ledger_recorder.scheduler import recorded

ROOT = Path(__file__).parents[1]
BLOCK = 4
Status = IntEnum(
    "Status",
    ["WAITING", "RUNNING", "PREEMPTED", "FINISHED_LENGTH_CAPPED", "FINISHED_ABORTED"],
)
SECRET = 7_700_000  # tokens begin here, so that one in a spool is found


class Job:
    """A request as the scheduler knows it."""

    def __init__(self, request_id: str, prompt: int, most: int, **more: Any) -> None:
        self.request_id, self.num_prompt_tokens, self.max_tokens = request_id, prompt, most
        self.tokens = [SECRET + k for k in range(prompt)]
        self.priority, self.arrival_time = 0, 1_800_000_000.25
        self.block_hashes = [f"hash-{k}".encode() for k in range(prompt // BLOCK)]
        self.num_computed_tokens = self.num_preemptions = 0
        self.status = Status.WAITING
        self.structured_output_request = None
        vars(self).update(more)

    @property
    def num_tokens(self) -> int:
        """Known text: prompt and output."""
        return len(self.tokens)

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.num_prompt_tokens


class Engine:
    """A first-come scheduler with vLLM's method names, small enough to predict by hand."""

    def __init__(self, blocks: int, *, caching: bool = False) -> None:
        self.free = blocks
        pool = SimpleNamespace(get_num_free_blocks=lambda: self.free)
        self.kv_cache_manager = SimpleNamespace(block_pool=pool)
        self.cache_config = SimpleNamespace(enable_prefix_caching=caching, block_size=BLOCK)
        self.vllm_config = SimpleNamespace(
            parallel_config=SimpleNamespace(
                data_parallel_index=3,
                tensor_parallel_size=1,
                pipeline_parallel_size=1,
                data_parallel_size=1,
            ),
            cache_config=self.cache_config,
            scheduler_config=SimpleNamespace(policy="fcfs", max_num_seqs=8),
            model_config=SimpleNamespace(
                served_model_name="/models/secret-place", model="/models/secret-place"
            ),
        )
        self.kv_cache_config = SimpleNamespace(num_blocks=blocks + 1, kv_cache_groups=[])
        self.block_size = BLOCK
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.requests: dict[str, Job] = {}
        self.held: Counter[str] = Counter()

    def add_request(self, request: Job) -> None:
        """Queue it."""
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def _take(self, job: Job, tokens: int) -> bool:
        more = -(-tokens // BLOCK) - self.held[job.request_id]
        if more > self.free:
            return False
        self.free -= more
        self.held[job.request_id] += more
        return True

    def schedule(self) -> Any:
        """The running first, each victim the last of them; then whoever fits."""
        batch: dict[str, int] = {}
        preempted = False
        for job in list(self.running):
            if job not in self.running:
                continue
            while not self._take(job, job.num_tokens):
                victim = self.running.pop()
                batch.pop(victim.request_id, None)
                self._preempt_request(victim, 0.0)
                preempted = True
                if victim is job:
                    break
            if job in self.running:
                batch[job.request_id] = job.num_tokens - job.num_computed_tokens
        while (
            self.waiting
            and not preempted
            and self._take(self.waiting[0], self.waiting[0].num_tokens)
        ):
            job = self.waiting.popleft()
            job.status = Status.RUNNING
            self.running.append(job)
            batch[job.request_id] = job.num_tokens
        for request_id, scheduled in batch.items():
            self.requests[request_id].num_computed_tokens += scheduled
        total = sum(batch.values())
        return SimpleNamespace(num_scheduled_tokens=batch, total_num_scheduled_tokens=total)

    def _preempt_request(self, request: Job, _timestamp: float) -> None:
        self.free += self.held.pop(request.request_id)
        request.status, request.num_computed_tokens = Status.PREEMPTED, 0
        request.num_preemptions += 1
        self.waiting.appendleft(request)

    def update_from_output(self, scheduler_output: Any) -> list[str]:
        """A token for each of the batch; who ended."""
        done = []
        for request_id in scheduler_output.num_scheduled_tokens:
            job = self.requests.get(request_id)
            if job is None:
                continue
            job.tokens.append(SECRET - 1)
            if job.num_output_tokens == job.max_tokens:
                job.status = Status.FINISHED_LENGTH_CAPPED
                self._free_request(job)
                self.running.remove(job)
                done.append(request_id)
        return done

    def finish_requests(self, request_ids: Any, status: Status) -> None:
        """End requests from outside."""
        for request_id in list(request_ids or self.requests):
            job = self.requests[request_id]
            (self.running if job in self.running else self.waiting).remove(job)
            job.status = status
            self._free_request(job)

    def _free_request(self, request: Job) -> None:
        self.free += self.held.pop(request.request_id, 0)
        del self.requests[request.request_id]

    def shutdown(self) -> None:
        """Nothing to let go of."""

    def run(self) -> list[list[str]]:
        """Serve until nothing is left; who ended in each step."""
        ended = []
        while self.requests:
            ended.append(self.update_from_output(self.schedule()))
        return ended


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that the environment names."""
    monkeypatch.setenv(session.DIRECTORY, str(tmp_path / "spool"))
    return tmp_path / "spool"


def watched(blocks: int, *, caching: bool = False) -> Any:
    """An engine under the recorder."""
    return recorded(Engine)(blocks, caching=caching)


def read(directory: Path) -> tuple[Header, list[Any]]:
    """Header and records of the only session."""
    ((_, parts),) = list_parts(directory).items()
    header = read_header(parts[0])
    assert header is not None
    return header, [r for part in parts for frame in read_part(part) for r in frame.records]


def of(records: list[Any], kind: type) -> list[Any]:
    """Records of one kind."""
    return [record for record in records if isinstance(record, kind)]


def two_that_do_not_fit(engine: Any) -> None:
    """Of five blocks the first grows into the second's: one preemption, in step 1."""
    engine.add_request(Job("cmpl-first-0-0123abcd", 12, 3))
    engine.add_request(Job("cmpl-second-0-0123abcd", 8, 2))


def test_a_preemption_is_noted_with_the_state_around_it(spool: Path) -> None:
    """Context, lost and generated tokens, blocks, both queues and the count, and its step."""
    engine = watched(5)
    two_that_do_not_fit(engine)
    engine.run()
    engine.shutdown()
    header, records = read(spool)
    (act,) = of(records, Preempt)
    assert (1, 1, 9, 8, 1, 2, 0, 1, 1, 1) == (
        *(act.step, act.n, act.context, act.computed, act.generated, act.freed, act.free_before),
        *(act.running, act.waiting, act.num_preemptions),
    )
    assert 3 == header.engine
    assert ["first", "second"] == [r.request_id for r in of(records, Request)]


def test_every_event_of_a_request_is_noted_in_its_step(spool: Path) -> None:
    """Arrivals name the first step that can schedule them, all else the step it happened in."""
    engine = watched(5)
    two_that_do_not_fit(engine)
    engine.run()
    engine.shutdown()
    _, records = read(spool)
    events = [(type(r).__name__, r.step, r.n) for r in records if hasattr(r, "seq")]
    assert [
        *(("Arrive", 0, 0), ("Arrive", 0, 1), ("Admit", 0, 0), ("Admit", 0, 1)),
        *(("Preempt", 1, 1), ("Finish", 2, 0), ("Resume", 3, 1), ("Finish", 3, 1)),
    ] == events
    assert list(range(8)) == [r.seq for r in records if hasattr(r, "seq")]
    first, second = of(records, Finish)
    assert (3, 0, "ok", "length", 0) == (*first[4:8], first.requeue_ns)
    assert (2, 1, "ok", "length") == second[4:8]
    assert second.requeue_ns > 0
    assert second.first_token_ns < second.last_token_ns == second.t_ns


def test_a_step_is_noted_with_its_totals(spool: Path) -> None:
    """Prefill counts a resumed request's known text; the rest of a batch decodes."""
    engine = watched(5)
    two_that_do_not_fit(engine)
    engine.run()
    engine.shutdown()
    _, records = read(spool)
    # step, scheduled, prefill, decoding, computed tokens, free blocks, running, waiting
    assert [
        (0, 20, 20, 0, 20, 0, 2, 0),
        (1, 1, 0, 1, 13, 1, 1, 1),
        (2, 1, 0, 1, 14, 1, 1, 1),
        (3, 9, 9, 0, 9, 2, 1, 0),
    ] == [(s.step, *s[2:]) for s in of(records, Step)]
    assert isinstance(records[-1], End)


def test_a_step_that_only_waits_for_tokens_in_flight_has_a_number_and_no_row(spool: Path) -> None:
    """An asynchronous scheduler asks again before the last token is in: what follows is step 2."""
    engine = watched(5)
    engine.add_request(Job("cmpl-first-0-0123abcd", 4, 1))
    in_flight = engine.schedule()
    waiting, engine.running = engine.running, []  # its last token is in flight
    assert {} == engine.schedule().num_scheduled_tokens
    engine.running = waiting
    engine.update_from_output(in_flight)
    engine.add_request(Job("cmpl-second-0-0123abcd", 4, 1))
    engine.run()
    engine.shutdown()
    _, records = read(spool)
    assert [0, 2] == [s.step for s in of(records, Step)]
    assert [0, 2] == [one.step for one in of(records, Admit)]


def test_asking_when_there_is_nothing_to_do_is_no_step(spool: Path) -> None:
    """An idle engine's empty answers count nothing."""
    engine = watched(5)
    for _ in range(3):
        engine.update_from_output(engine.schedule())
    engine.add_request(Job("cmpl-first-0-0123abcd", 4, 1))
    engine.run()
    engine.shutdown()
    _, records = read(spool)
    assert [0] == [s.step for s in of(records, Step)]


def test_an_aborted_request_ends_with_what_it_had(spool: Path) -> None:
    """Its tokens and their times stay, its status says aborted, and its step is the next one."""
    engine = watched(9)
    engine.add_request(Job("0_cmpl-x-0-0123abcd", 4, 9))
    for _ in range(2):
        engine.update_from_output(engine.schedule())
    engine.finish_requests(["0_cmpl-x-0-0123abcd"], Status.FINISHED_ABORTED)
    engine.shutdown()
    _, records = read(spool)
    (request,), (end,) = of(records, Request), of(records, Finish)
    assert ("x#0", ["n_greater_than_1"]) == (request.request_id, request.features)
    assert (2, 2, 0, "aborted", "abort") == (end.step, *end[4:8])
    assert end.first_token_ns < end.last_token_ns < end.t_ns


def test_prompts_that_begin_alike_share_numbers_and_no_text_leaves(spool: Path) -> None:
    """Block hashes become dense integers; no token, hash or path is in the spool."""
    engine = watched(20, caching=True)
    engine.add_request(Job("a", 13, 1))
    engine.add_request(Job("b", 8, 1, block_hashes=[b"hash-0", b"hash-other"]))
    engine.run()
    engine.shutdown()
    header, records = read(spool)
    assert [[0, 1, 2], [0, 3]] == [r.prefix_ids for r in of(records, Request)]
    told = json.dumps(dict(header.facts)) + "".join(map(repr, records))
    assert header.facts["model"] is None
    assert not any(text in told for text in ("hash-", str(SECRET)[:4], "secret-place"))


def test_the_engine_does_the_same_with_and_without_the_recorder(spool: Path) -> None:
    """Who ends in which step, and what is left of the pool."""
    plain, observed = Engine(7), watched(7)
    for engine in (plain, observed):
        for k in range(12):
            engine.add_request(Job(f"r{k}", 3 + 5 * k % 11, 2 + k % 7))
    assert plain.run() == observed.run()
    assert plain.free == observed.free
    observed.shutdown()
    assert 12 == len(of(read(spool)[1], Finish))


def test_an_error_in_the_recorder_reaches_no_engine_and_turns_it_off(
    spool: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine serves on; the spool says how many errors there were and where it gave up."""
    engine = watched(9)
    monkeypatch.setattr(engine._preemption_ledger.notes, "_prefilling", None)
    monkeypatch.setattr(engine._preemption_ledger.notes, "_admissions", lambda *_: 1 / 0)
    engine.add_request(Job("a", 4, 15))
    with caplog.at_level(logging.WARNING):
        ended = engine.run()
    engine.shutdown()
    assert ["a"] == ended[-1]
    assert 1 == sum("off after" in message for message in caplog.messages)
    (*_, last) = of(read(spool)[1], Dropped)
    assert (session.MOST_ERRORS, session.MOST_ERRORS) == (last.dropped, last.internal_errors)
    assert last.off == "schedule"


def test_a_directory_that_others_can_write_is_refused(
    spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """So is a link; the engine starts and serves without a recorder, and the log says why."""
    spool.mkdir()
    spool.chmod(0o777)
    with caplog.at_level(logging.WARNING):
        engine = watched(5)
    two_that_do_not_fit(engine)
    assert 4 == len(engine.run())
    assert [] == list(spool.iterdir())
    spool.rename(spool.with_name("elsewhere"))
    spool.symlink_to(spool.with_name("elsewhere"))
    with caplog.at_level(logging.WARNING):
        watched(5)
    assert 2 == sum("recorder is off: must" in message for message in caplog.messages)


def test_what_is_written_is_for_its_owner_alone(spool: Path) -> None:
    """Directory 0700, files 0600."""
    engine = watched(5)
    engine.shutdown()
    (part,) = spool.iterdir()
    assert (0o700, 0o600) == (spool.stat().st_mode & 0o777, part.stat().st_mode & 0o777)


def test_a_forked_child_writes_nothing(spool: Path) -> None:
    """The copy of an engine in a child goes on without the recorder."""
    engine = watched(5)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        child = os.fork()  # of a process with threads, as an engine is
    if child == 0:
        failed = 1
        try:
            two_that_do_not_fit(engine)
            engine.run()
            engine.shutdown()
            failed = 0
        finally:
            os._exit(failed)
    assert 0 == os.waitpid(child, 0)[1]
    engine.shutdown()
    _, records = read(spool)
    assert [] == of(records, Arrive)
    assert 1 == len(of(records, End))


def test_a_killed_engine_leaves_all_but_the_last_moment(tmp_path: Path) -> None:
    """What was served gets to the disk while the engine goes on, and every frame is whole."""
    code = (
        f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'tests')]}\n"
        "import time, test_recorder as t\n"
        "engine, k = t.watched(9), 0\n"
        "while True:\n"
        "    engine.add_request(t.Job(f'r{k}', 4, 3)); engine.run(); k += 1\n"
        "    print(time.monotonic_ns(), flush=True); time.sleep(0.002)\n"
    )
    environment = os.environ | {session.DIRECTORY: str(tmp_path / "spool")}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env=environment,
        cwd=ROOT,
    ) as engine:
        assert engine.stdout is not None
        served = [int(engine.stdout.readline()) for _ in range(100)]
        lines = iter(engine.stdout.readline, b"")
        waited = time.monotonic() + 60
        while not (ends := written(tmp_path / "spool")) or ends[-1].t_ns < served[-1]:
            next(lines)  # it goes on
            assert time.monotonic() < waited
        engine.send_signal(signal.SIGKILL)
    _, records = read(tmp_path / "spool")
    assert ends == of(records, Finish)[: len(ends)]
    assert list(range(len(ends))) == [end.n for end in ends]
    assert [] == of(records, End)


def written(directory: Path) -> list[Finish]:
    """Ends of requests in a spool that is being written, if it is there."""
    sessions = list_parts(directory).values() if directory.exists() else ()
    parts = [part for found in sessions for part in found]
    return of([r for part in parts for frame in read_part(part) for r in frame.records], Finish)


def test_without_the_variable_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry point does not even import vLLM."""
    monkeypatch.delenv(session.DIRECTORY, raising=False)
    monkeypatch.setattr(plugin, "watch", lambda _: pytest.fail("must not be called"))
    plugin.register()
    assert "vllm" not in sys.modules


def test_an_unknown_vllm_is_left_alone(
    spool: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A plugin that cannot do its work says so and raises nothing."""
    monkeypatch.setitem(sys.modules, "vllm.config", SimpleNamespace())
    with caplog.at_level(logging.WARNING):
        plugin.register()
    assert ["Preemption recorder is off: this vLLM is not known"] == caplog.messages
    assert not spool.exists()


def test_the_scheduler_class_is_wrapped_once(spool: Path) -> None:
    """However often the plugin is called, a class has one subclass, and that is not wrapped."""

    class Config:
        """Gives the engine its scheduler class."""

        def get_scheduler_cls(self) -> type:
            return Engine

    for _ in range(3):
        plugin.watch(Config)
    made = Config().get_scheduler_cls()
    assert (Engine, made) == (made.__mro__[2], Config().get_scheduler_cls())
    assert made is recorded(made)
    assert "RecordedEngine" == made.__name__
    assert not spool.exists()


def test_a_scheduler_without_what_is_watched_stays_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A custom class of another kind is used unchanged; the log names what it lacks."""

    class Other:
        """Schedules in a way of its own."""

        def schedule(self) -> None:
            """Nothing to do."""

    with caplog.at_level(logging.WARNING):
        assert Other is plugin.recorded_class(Other)
        assert Other is plugin.recorded_class(Other)
    assert 1 == len(caplog.messages)
    assert "_preempt_request" in caplog.messages[0]


def test_more_input_for_a_request_is_no_new_request(spool: Path) -> None:
    """A streaming session that adds to its prompt keeps its one row."""
    engine = watched(9)
    job = Job("s", 4, 3)
    engine.add_request(job)
    engine._preemption_ledger.notes.arrived(job, known=True)
    engine.run()
    engine.shutdown()
    _, records = read(spool)
    assert (1, 1, 0) == tuple(len(of(records, kind)) for kind in (Request, Admit, Resume))
