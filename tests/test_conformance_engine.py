"""What drives vLLM's scheduler, tried on a toy scheduler with vLLM's method names."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.engine import Batch, Recorder, Rig, own_token, prompt_tokens, run_case

ENGINE = {"tick_us": 10, "block_size": 4, "async_scheduling": False, "watermark": 0.0}


class ToyRequest(SimpleNamespace):
    """The fields of a vLLM request that are read."""

    @property
    def num_tokens(self) -> int:
        """Known tokens."""
        return int(self.num_prompt_tokens + self.num_output_tokens)


class ToyScheduler:
    """One block per request, everybody runs; a full pool preempts the last running request."""

    def __init__(self, blocks: int, chunk: int) -> None:
        self.blocks, self.chunk = blocks, chunk
        self.requests: dict[str, ToyRequest] = {}
        self.running: list[ToyRequest] = []
        self.waiting: list[ToyRequest] = []
        self.held: set[str] = set()
        pool = SimpleNamespace(get_num_free_blocks=lambda: self.blocks - len(self.held))
        self.kv_cache_manager = SimpleNamespace(block_pool=pool, allocate_slots=self.allocate)

    def allocate(self, request: ToyRequest, _: int, **__: int) -> object:
        """A block for who has none; who has one cannot have another."""
        if request.request_id in self.held or len(self.held) == self.blocks:
            return None
        self.held.add(request.request_id)
        return object()

    def add_request(self, request: ToyRequest) -> None:
        """Arrival."""
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def get_num_unfinished_requests(self) -> int:
        """Everybody here."""
        return len(self.requests)

    def _preempt_request(self, request: ToyRequest, _: float) -> None:
        self.held.remove(request.request_id)
        request.num_computed_tokens = request.num_output_placeholders = 0
        request.status = SimpleNamespace(name="PREEMPTED")
        self.waiting.insert(0, request)

    def _free_request(self, request: ToyRequest) -> None:
        self.running.remove(request)
        self.held.remove(request.request_id)

    def schedule(self) -> Any:
        """Admit who fits, then give each running request up to a chunk of tokens."""
        while self.waiting and len(self.running) < self.blocks:
            request = self.waiting[0]
            self.kv_cache_manager.allocate_slots(request, self.chunk, num_new_computed_tokens=0)
            del self.waiting[0]
            request.status = SimpleNamespace(name="RUNNING")
            self.running.append(request)
        scheduled = {}
        for request in self.running:
            placeholder = request.num_output_placeholders
            left = request.num_tokens + placeholder - request.num_computed_tokens
            if request.num_output_tokens + placeholder >= request.max_tokens:
                continue
            scheduled[request.request_id] = min(left, self.chunk)
            request.num_computed_tokens += scheduled[request.request_id]
            request.is_prefill_chunk = request.num_computed_tokens < request.num_tokens
            request.num_output_placeholders += not request.is_prefill_chunk
        return SimpleNamespace(num_scheduled_tokens=scheduled)

    def update_from_output(self, _: object, answer: Any) -> None:
        """Deliver tokens."""
        for who, tokens in zip(answer.req_ids, answer.sampled_token_ids, strict=True):
            request = self.requests[who]
            request.num_output_tokens += len(tokens)
            request.num_output_placeholders -= len(tokens)
            if request.num_output_tokens == request.max_tokens:
                self._free_request(request)
                del self.requests[who]


class ToyRig:
    """What the driver asks of vLLM."""

    release = "0.0.0"
    answer_class = SimpleNamespace

    def __init__(self, blocks: int = 2, chunk: int = 8) -> None:
        self.toy = ToyScheduler(blocks, chunk)

    def scheduler(self, _: object) -> ToyScheduler:
        """The toy."""
        return self.toy

    def request_maker(self, _: object) -> Callable[[int, dict[str, Any]], ToyRequest]:
        """Toy requests."""
        return lambda place, row: ToyRequest(
            request_id=row["request_id"],
            place=place,
            num_prompt_tokens=row["prompt_tokens"],
            max_tokens=row["output_tokens"],
            num_output_tokens=0,
            num_output_placeholders=0,
            num_computed_tokens=0,
            is_prefill_chunk=False,
            status=SimpleNamespace(name="WAITING"),
        )


def case(*requests: tuple[str, int, int, int], **changes: Any) -> dict[str, Any]:
    """A case of (id, arrival_us, prompt, output) requests."""
    keys = ("request_id", "arrival_us", "prompt_tokens", "output_tokens")
    rows = [dict(zip(keys, request, strict=True)) for request in requests]
    return {"name": "toy", "config": {"engine": ENGINE | changes}, "requests": rows}


def run(rig: ToyRig, what: dict[str, Any]) -> dict[str, Any]:
    """The result of a case on the toy."""
    result: dict[str, Any] = run_case(rig, what)  # type: ignore[arg-type]
    assert "error" not in result
    return result


def test_a_token_counts_in_the_tick_of_its_batch() -> None:
    """Synchronous: 2 tokens of a prompt that fits one chunk come in ticks 0 and 1."""
    result = run(ToyRig(), case(("a", 0, 5, 2)))
    assert [[0, "a"]] == result["first_tokens"]
    assert [[1, "a", 1, 2]] == result["completions"]
    assert [[0, "a", 0, 0, 1, 1, 1, 0]] == result["admissions"]


def test_an_asynchronous_token_counts_one_tick_later() -> None:
    """The next batch is scheduled before the tokens of the one before are delivered."""
    result = run(ToyRig(), case(("a", 0, 5, 2), async_scheduling=True))
    assert [[1, "a"]] == result["first_tokens"]
    assert [[2, "a"]] == [row[:2] for row in result["completions"]]


def test_idle_ticks_are_skipped_and_arrivals_keep_workload_order() -> None:
    """An arrival's tick is arrival_us // tick_us; ties stand as the workload has them."""
    requests = (("late", 905, 5, 1), ("b", 9, 5, 1), ("a", 9, 5, 1))
    result = run(ToyRig(), case(*requests))
    assert [[0, "b"], [0, "a"], [90, "late"]] == result["first_tokens"]
    assert 2 == result["steps"]


def test_a_request_s_own_arrival_time_is_what_priority_compares() -> None:
    """Without one, its place in the workload is."""
    row = {"request_id": "a", "prompt_tokens": 1, "output_tokens": 1}
    made = []
    rig = SimpleNamespace(
        request_class=lambda **given: made.append(given["arrival_time"]),
        sampling_class=lambda **_: None,
    )
    what = {"config": {"engine": {"enable_prefix_caching": False}}, "requests": []}
    make = Rig.request_maker(rig, what)  # type: ignore[arg-type]
    for place, request in enumerate((row, row | {"engine_arrival_us": 0}, row)):
        make(place, request)
    assert [0, 0, 2] == made


def test_a_split_prompt_gives_no_token_until_it_is_complete() -> None:
    """9 tokens in chunks of 4: two batches without a token, and both are counted as split."""
    result = run(ToyRig(chunk=4), case(("a", 0, 9, 1)))
    assert [[2, "a"]] == result["first_tokens"]
    assert 2 == result["seen"]["split_prompts"]


def test_what_can_never_move_again_ends_the_run_as_unfinished() -> None:
    """A pool that admits nobody is not asked for ever."""
    result = run(ToyRig(blocks=0), case(("a", 0, 5, 1), ("b", 70, 5, 1)))
    assert (["a", "b"], 2) == (result["unfinished"], result["steps"])


def test_a_run_ends_at_max_ticks() -> None:
    """Ticks 0 to max_ticks - 1, and who is left is unfinished."""
    what = case(("a", 0, 5, 9), ("b", 30, 5, 1))
    what["config"]["limits"] = {"max_ticks": 3}
    result = run(ToyRig(), what)
    assert (["a", "b"], 3) == (result["unfinished"], result["steps"])


def test_states_are_shown_for_the_traced_ticks_only() -> None:
    """Before the step with the arrivals in, and after it."""
    what = case(("a", 0, 5, 3)) | {"trace_ticks": [1, 1]}
    states = run(ToyRig(), what)["states"]
    assert [(1, "arrived"), (1, "end")] == [(s["tick"], s["when"]) for s in states]
    assert [1, 2] == [s["running"][0]["generated"] for s in states]


def running_pair(**changes: Any) -> tuple[ToyScheduler, Recorder, ToyRequest, ToyRequest]:
    """A watched toy in which a, then b, were admitted into a pool of two blocks."""
    toy = ToyScheduler(2, 8)
    recorder = Recorder(toy, ENGINE)
    make = ToyRig().request_maker({})
    rows = case(("a", 0, 5, 3), ("b", 0, 6, 3))["requests"]
    first, second = (make(place, row) for place, row in enumerate(rows))
    for request in (first, second):
        toy.add_request(request)
    toy.schedule()
    for name, value in changes.items():
        setattr(first, name, value)
    return toy, recorder, first, second


def preempt(toy: ToyScheduler, victim: ToyRequest) -> None:
    """Take a victim off the list, as vLLM does before it preempts."""
    toy.running.remove(victim)
    toy._preempt_request(victim, 0.0)


def test_a_preemption_names_victim_and_requester_and_what_it_cost() -> None:
    """Freed blocks are the rise of the free count; the queues are those after it."""
    toy, recorder, first, second = running_pair()
    assert toy.kv_cache_manager.allocate_slots(first, 1) is None
    preempt(toy, second)
    assert [[0, "b", "a", 1, 6, 6, 0, 1, 1, 1]] == recorder.preemptions
    assert (0, 0) == (recorder.seen["not_the_last"], recorder.seen["passed_over"])


@pytest.mark.parametrize(("in_flight", "counted"), [(3, 1), (1, 0)])
def test_a_victim_the_pass_had_gone_by_is_counted(in_flight: int, counted: int) -> None:
    """It stood before the requester and its last token was in flight, so it asked for nothing."""
    toy, recorder, first, second = running_pair(num_output_placeholders=in_flight)
    toy.kv_cache_manager.allocate_slots(second, 1)
    preempt(toy, first)
    assert (1, counted) == (recorder.seen["not_the_last"], recorder.seen["passed_over"])


def test_what_vllm_raises_is_part_of_the_result() -> None:
    """A case that breaks vLLM is reported, and the next one can be asked."""
    rig = ToyRig()
    rig.toy.schedule = lambda: 1 / 0  # type: ignore[method-assign,assignment]
    result = run_case(rig, case(("a", 0, 5, 3)))  # type: ignore[arg-type]
    assert "ZeroDivisionError: division by zero" == result["error"]
    assert ["a"] == result["unfinished"]


def test_who_samples_is_decided_when_the_batch_is_scheduled() -> None:
    """A request preempted and resumed in between would look as if it did not sample."""
    request = SimpleNamespace(is_prefill_chunk=False)
    scheduler = SimpleNamespace(requests={"a": request})
    output = SimpleNamespace(num_scheduled_tokens={"a": 1})
    batch = Batch(output, scheduler, {"a": [7]})
    request.is_prefill_chunk = True
    assert [[7]] == batch.sampled


@pytest.mark.parametrize(
    ("row", "chunk", "tokens"),
    [
        ({"prompt_tokens": 3}, None, [9, 9, 9]),
        ({"prompt_tokens": 5, "prefix_blocks": [3, 0]}, 2, [6, 6, 0, 0, 9]),
        ({"prompt_tokens": 3, "prefix_blocks": [3, 0]}, 2, [6, 6, 0]),
        ({"prompt_tokens": 2, "prefix_blocks": None}, 2, [9, 9]),
    ],
)
def test_equal_chunks_are_equal_tokens_and_the_rest_is_unique(
    row: dict[str, Any], chunk: int | None, tokens: list[int]
) -> None:
    """The last chunk is cut to the prompt; what no chunk covers is the request's own token."""
    assert tokens == prompt_tokens(row, own_token(4), chunk)
