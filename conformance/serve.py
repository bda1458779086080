"""A real vLLM server on loopback: random weights, no GPU, yet real preemptions and real pages.

    with Server(environment("0.32.0"), Options(blocks=48), folder) as server:
        ...                                       # server.url, server.served, server.log

Weights are vLLM's dummy ones, so the model is a folder of three small JSON files that is written on
the spot. Prompts go in as token ids below `VOCABULARY`, with `ignore_eos`: lengths are then exactly
what was asked for.
"""

import json
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from conformance.install import Environment
from replay.errors import ReplayError

MODEL = "tinymodel"
VOCABULARY = 1024
_SPECIAL = ("<unk>", "<s>", "</s>")
_LONGEST_MODEL = 4096
_SAID_LINES = 3
_CALM = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
_NOT_PASSED_ON = ("PYTHON", "VLLM_", "PREEMPTION_LEDGER_")
# Never through a proxy: the server is on this machine.
_open = build_opener(ProxyHandler({})).open


class ServerFailed(ReplayError):
    """vLLM ended, or was not ready in time; the message holds the end of what it printed."""

    exit_code = 70


@dataclass(frozen=True)
class Options:
    """How a server is started; `blocks` includes vLLM's null block, None lets vLLM choose.

    One core for the server and another for whoever asks it makes runs comparable: unpinned, their
    latencies differ by a factor of two.
    """

    blocks: int | None = 48
    block_size: int = 32  # CPU attention wants multiples of 32
    max_model_len: int = 960
    prefix_caching: bool = False
    scheduling_policy: str = "fcfs"
    kv_gib: int = 1
    core: int | None = None
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    # `vllm serve` is ("-m", "vllm.entrypoints.cli.main", "serve"), and wants a distribution `vllm`.
    program: tuple[str, ...] = ("-m", "vllm.entrypoints.openai.api_server")
    pythonpath: tuple[Path, ...] = ()  # what `uv pip install --target` made, a recorder for one


def write_model(folder: Path) -> Path:
    """Make the model's folder: a two-layer Llama and a tokenizer of one word for each id."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [*_SPECIAL, *(f"w{number}" for number in range(VOCABULARY - len(_SPECIAL)))]
    files: dict[str, dict[str, Any]] = {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": _LONGEST_MODEL,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "<unk>",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "model_max_length": _LONGEST_MODEL,
        },
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [_added(number, word) for number, word in enumerate(_SPECIAL)],
            "normalizer": None,
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": None,
            "decoder": None,
            "model": {
                "type": "WordLevel",
                "vocab": {word: number for number, word in enumerate(words)},
                "unk_token": "<unk>",
            },
        },
    }
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value) + "\n", encoding="utf-8")
    return folder


def _added(number: int, word: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": word, **flags, "special": True}


def server_command(python: Path, model: Path, port: int, options: Options) -> list[str]:
    """The command line that serves `model` on loopback."""
    pin = [] if options.core is None else ["taskset", "-c", str(options.core)]
    blocks = [] if options.blocks is None else ["--num-gpu-blocks-override", str(options.blocks)]
    caching = "--enable-prefix-caching" if options.prefix_caching else "--no-enable-prefix-caching"
    return [
        *(*pin, str(python), *options.program),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--model", str(model), "--served-model-name", MODEL),
        *("--load-format", "dummy", "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", str(options.max_model_len)),
        *("--block-size", str(options.block_size), *blocks, caching),
        *("--scheduling-policy", options.scheduling_policy, *options.arguments),
    ]


def server_environ(
    base: Mapping[str, str], environment: Environment, options: Options
) -> dict[str, str]:
    """Variables of the server's process, without what this shell says about vLLM or Python.

    Of what is not vLLM's own, only `pythonpath` can be imported in there.
    """
    kept = {name: value for name, value in base.items() if not name.startswith(_NOT_PASSED_ON)}
    made = {
        "VLLM_CPU_KVCACHE_SPACE": str(options.kv_gib),
        "VLLM_CACHE_ROOT": str(environment.cache / "vllm"),
        # Nothing is written beside an interpreter that was given, and starts are quicker.
        "PYTHONPYCACHEPREFIX": str(environment.cache / "bytecode"),
    }
    if options.pythonpath:
        made["PYTHONPATH"] = os.pathsep.join(str(path.resolve()) for path in options.pythonpath)
    return kept | _CALM | made | dict(options.environ)


def start_line(environment: Environment, model: Path, port: int, options: Options) -> str:
    """One line that starts the server, as a person would give it to `preempt compare`."""
    environ = server_environ({}, environment, options)
    given = [f"{name}={value}" for name, value in environ.items()]
    return shlex.join(["env", *given, *server_command(environment.python, model, port, options)])


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number: int = listening.getsockname()[1]
    return number


@dataclass
class Server:
    """A server for as long as the `with` block lasts; `folder` takes its model and its log.

    Entering waits until it answers, `ServerFailed` after `ready_s` seconds or when it ended before.
    """

    environment: Environment
    options: Options
    folder: Path
    ready_s: float = 300
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @property
    def url(self) -> str:
        """Base URL, without a slash at its end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def served(self) -> str:
        """Name that requests call the model by."""
        return MODEL

    @property
    def log(self) -> Path:
        """What the server printed, both streams."""
        return self.folder / "server.log"

    @property
    def pid(self) -> int:
        """Process id of the API server, which leads a process group of its own."""
        return self._running().pid

    def start(self) -> Self:
        """Start the process and wait until it is ready."""
        model = write_model(self.folder.resolve() / MODEL)
        command = server_command(self.environment.python, model, self.port, self.options)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 (our own command line)
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=server_environ(os.environ, self.environment, self.options),
                # Neither the checkout is importable nor is a relative path found by accident.
                cwd=self.folder,
                start_new_session=True,
            )
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, patience_s: float = 30) -> int:
        """Ask the server to end, as an operator does, then kill what is left; its exit code."""
        process = self._running()
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience_s)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait()

    def kill(self) -> int:
        """Kill the engine core as the kernel does when memory runs out; its process id."""
        (core,) = engine_cores(self.pid)
        os.kill(core, signal.SIGKILL)
        return core

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerFailed("the server was not started")
        return self._process

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + self.ready_s
        while not is_ready(self.url):
            code = self._running().poll()
            if code is not None:
                raise ServerFailed(f"vLLM ended with {code} before it was ready: {self._said()}")
            if time.monotonic() > deadline:
                raise ServerFailed(f"vLLM was not ready in {self.ready_s:g} s: {self._said()}")
            time.sleep(0.2)

    def _said(self) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-_SAID_LINES:]) or "nothing"


def is_ready(url: str) -> bool:
    """Whether `/health` answers 200."""
    try:
        answer: IO[bytes] = _open(f"{url}/health", timeout=5)
    except (URLError, OSError):
        return False
    with answer:
        return True


def engine_cores(pid: int) -> list[int]:
    """Process ids of the engine cores below an API server; empty once they are gone."""
    return [child for child in _children(pid) if b"EngineCore" in _title(child)]


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, task.read_text(encoding="ascii").split())


def _title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
