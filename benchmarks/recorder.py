"""What the recorder costs: a real engine with it and without, in ABBA order, on the same work.

    python benchmarks/recorder.py --pairs 12 --python /path/to/vllm/bin/python

Two engines run side by side, one of them recording; only one works at a time. Each of the pairs is
A B B A (A: without), so that a drift of the machine hits both alike. Printed are the ratios B / A:
throughput (generated tokens per second) and of processor time for the same tokens, each with a 95 %
interval. Processor time is what neighbours on a shared machine disturb least.

Every engine has one core, and the driver needs none while it works.
"""

import argparse
import contextlib
import importlib
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORDER = ROOT / "collectors" / "recorder"
DIRECTORY = "PREEMPTION_LEDGER_SPOOL"
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "torch_dtype": "float32",
}
# Two-sided 97.5 % quantiles of Student's t by degrees of freedom; above, the normal one is near.
_FREEDOM = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 14, 19, 29, 59, 119)
_QUANTILES = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262),
    *(2.201, 2.145, 2.093, 2.045, 2.001, 1.980),
)
T975 = dict(zip(_FREEDOM, _QUANTILES, strict=True))


def interval(logs: list[float]) -> tuple[float, float, float]:
    """Ratio and its 95 % interval from the logarithms of the pairs' ratios."""
    mean = statistics.fmean(logs)
    if len(logs) < 2:  # noqa: PLR2004
        return math.exp(mean), 0.0, math.inf
    freedom = max(known for known in T975 if known <= len(logs) - 1)
    half = T975[freedom] * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def engine(options: argparse.Namespace) -> None:
    """The side inside vLLM: for each line of input serve the work once, and tell how long."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever vLLM prints is no answer
    vllm: Any = importlib.import_module("vllm")
    llm = vllm.LLM(
        model=options.model,
        skip_tokenizer_init=True,
        load_format="dummy",
        dtype="float32",
        max_model_len=960,
        block_size=32,
        num_gpu_blocks_override=options.blocks,
        enforce_eager=True,
        enable_prefix_caching=False,
        disable_log_stats=True,
    )
    rng = random.Random(1)  # noqa: S311 (the same work for both)
    prompts = [
        {"prompt_token_ids": [rng.randrange(1024) for _ in range(rng.randrange(24, 200))]}
        for _ in range(options.requests)
    ]
    sampling = [
        vllm.SamplingParams(
            max_tokens=rng.randrange(50, 400), ignore_eos=True, temperature=0.0, detokenize=False
        )
        for _ in prompts
    ]
    answers.write("ready\n")
    answers.flush()
    for _ in sys.stdin:
        cpu, start = cpu_s(), time.perf_counter()
        done = llm.generate(prompts, sampling, use_tqdm=False)
        took, used = time.perf_counter() - start, cpu_s() - cpu
        tokens = sum(len(one.outputs[0].token_ids) for one in done)
        answers.write(json.dumps({"tokens": tokens, "seconds": took, "cpu_s": used}) + "\n")
        answers.flush()


def cpu_s() -> float:
    """Processor time so far of this process and all below it."""
    ticks = 0
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            try:
                fields = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(place.name)] = int(fields[1])
            used[int(place.name)] = int(fields[11]) + int(fields[12])
    for pid, took in used.items():
        above = pid
        while above not in {0, 1, os.getpid()}:
            above = parents.get(above, 0)
        ticks += took if above == os.getpid() else 0
    return ticks / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def started(command: list[str], environment: dict[str, str]) -> Iterator[Any]:
    """An engine that answers on its standard output."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None  # noqa: S101
            if process.stdout.readline() != "ready\n":
                raise SystemExit("the engine did not start")
            yield process
        finally:
            assert process.stdin is not None  # noqa: S101
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with contextlib.suppress(ProcessLookupError):  # its engine core must not outlive it
                os.killpg(process.pid, signal.SIGKILL)


def served(process: Any) -> dict[str, float]:
    """One serving of the work."""
    process.stdin.write("go\n")
    process.stdin.flush()
    found: dict[str, float] = json.loads(process.stdout.readline())
    return found


def distribution(place: Path) -> None:
    """What makes the entry point of the checkout's recorder known, as an installation would."""
    info = place / "preemption_ledger_recorder-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: preemption-ledger-recorder\nVersion: 0\n"
    )
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\n"
        "preemption_ledger_recorder = preemption_ledger_recorder.plugin:register\n"
    )


def pairs(options: argparse.Namespace, place: Path) -> Iterator[tuple[float, float]]:
    """Logarithms of B / A, throughput and processor time, of each pair."""
    (place / "model").mkdir()
    (place / "model" / "config.json").write_text(json.dumps(MODEL))
    distribution(place)
    command = [options.python, __file__, "--model", str(place / "model")]
    command += ["--blocks", str(options.blocks), "--requests", str(options.requests)]
    if len(os.sched_getaffinity(0)) > 1:
        command = ["taskset", "-c", str(options.core), *command]
    path = os.pathsep.join([str(place), str(RECORDER), *options.path])
    common = {
        **os.environ,
        "PYTHONPATH": path,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_TARGET_DEVICE": "cpu",
    }
    common.pop(DIRECTORY, None)
    with contextlib.ExitStack() as stack:
        without = stack.enter_context(started(command, common))
        recording = {**common, DIRECTORY: str(place / "spool")}
        observed = stack.enter_context(started(command, recording))
        for one in (without, observed):
            served(one)  # warm
        for _ in range(options.pairs):
            runs = [served(one) for one in (without, observed, observed, without)]
            speed = [math.log(run["tokens"] / run["seconds"]) for run in runs]
            used = [math.log(run["cpu_s"] / run["tokens"]) for run in runs]
            print(
                *(f"{run['tokens'] / run['seconds']:8.1f}" for run in runs),
                *(f"{run['cpu_s']:8.2f}" for run in runs),
                flush=True,
            )
            yield tuple((v[1] + v[2] - v[0] - v[3]) / 2 for v in (speed, used))  # type: ignore[misc]
    files = list((place / "spool").iterdir())
    print(f"spool: {len(files)} parts, {sum(f.stat().st_size for f in files):,} bytes")


def main() -> None:
    """Print the two ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=12, help="ABBA rounds")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has vLLM")
    parser.add_argument("--path", action="append", default=[], help="more for its PYTHONPATH")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--blocks", type=int, default=160)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.model:
        engine(options)
        return
    print("tokens a second, then seconds of processor time, of A B B A", flush=True)
    found: list[tuple[float, float]] = []
    with (
        tempfile.TemporaryDirectory(prefix="recorder-") as place,
        contextlib.suppress(KeyboardInterrupt),  # what there is by then is told
    ):
        for one in pairs(options, Path(place)):
            found.append(one)  # noqa: PERF402 (an interrupt keeps what came before)
    if not found:
        raise SystemExit("no pair was served to its end")
    for name, logs in zip(("throughput", "processor time"), zip(*found, strict=True), strict=True):
        ratio, low, high = interval(list(logs))
        print(f"{name} with / without: {ratio:.4f}  95 % interval {low:.4f} to {high:.4f}")
    print(f"{len(found)} pairs; load of the machine {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
