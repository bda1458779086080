"""Starting a real vLLM: its command line, its model, and what happens when it does not come up."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from conformance.install import Environment
from conformance.serve import (
    MODEL,
    VOCABULARY,
    Options,
    Server,
    ServerFailed,
    engine_cores,
    is_ready,
    server_command,
    server_environ,
    write_model,
)

ENVIRONMENT = Environment(Path("/somewhere/bin/python"), Path("/elsewhere/cache"))
# Stands for vLLM's interpreter: it answers /health on the port it is told.
PRETEND = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"\\n")
    def log_message(self, *_):
        print("asked", flush=True)
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Answer).serve_forever()
"""
TIMID = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def pretend(folder: Path, code: str) -> Environment:
    """An environment whose interpreter runs `code` whatever it is asked to run."""
    (folder / "code.py").write_text(code)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {folder / "code.py"} "$@"\n')
    python.chmod(0o755)
    return Environment(python, folder / "cache")


def test_the_command_line_serves_on_loopback_with_every_option() -> None:
    """Blocks, lengths, policy and caching are vLLM's own flags; extra arguments come last."""
    options = Options(
        blocks=80,
        max_model_len=512,
        scheduling_policy="priority",
        arguments=("--max-num-seqs", "8"),
    )
    words = server_command(Path("/p/python"), Path("/m"), 8123, options)
    assert ["/p/python", "-m", "vllm.entrypoints.openai.api_server"] == words[:3]
    pairs = dict(pairwise(words))
    expected = {
        "--host": "127.0.0.1",
        "--port": "8123",
        "--model": "/m",
        "--served-model-name": MODEL,
        "--load-format": "dummy",
        "--num-gpu-blocks-override": "80",
        "--block-size": "32",
        "--max-model-len": "512",
        "--scheduling-policy": "priority",
        "--max-num-seqs": "8",
    }
    assert expected == {flag: pairs[flag] for flag in expected}
    assert "--no-enable-prefix-caching" in words


def test_prefix_caching_a_core_and_vllms_own_number_of_blocks_can_be_asked_for() -> None:
    """Pinning wraps the whole command; without an override there is no such flag."""
    options = Options(blocks=None, prefix_caching=True, core=0)
    words = server_command(Path("/p/python"), Path("/m"), 1, options)
    assert ["taskset", "-c", "0", "/p/python"] == words[:4]
    assert "--enable-prefix-caching" in words
    assert "--num-gpu-blocks-override" not in words


def test_the_server_sees_no_python_or_vllm_setting_of_this_shell(tmp_path: Path) -> None:
    """Neither PYTHONPATH nor VLLM_PLUGINS nor a spool pass on; what the options name does."""
    shell = {
        "PATH": "/bin",
        "PYTHONPATH": "/checkout",
        "VLLM_PLUGINS": "other",
        "PREEMPTION_LEDGER_SPOOL": "/old",
    }
    options = Options(environ={"PREEMPTION_LEDGER_SPOOL": "/new"}, pythonpath=(tmp_path,))
    found = server_environ(shell, ENVIRONMENT, options)
    assert ("/bin", str(tmp_path)) == (found["PATH"], found["PYTHONPATH"])
    assert "/new" == found["PREEMPTION_LEDGER_SPOOL"]
    assert "VLLM_PLUGINS" not in found
    assert "1" == found["VLLM_NO_USAGE_STATS"]
    assert found["PYTHONPYCACHEPREFIX"].startswith("/elsewhere/cache/")
    assert "PYTHONPATH" not in server_environ(shell, ENVIRONMENT, Options())


def test_the_models_folder_holds_three_files_of_one_vocabulary(tmp_path: Path) -> None:
    """As many words as the embedding has rows, special tokens first, no weights."""
    folder = write_model(tmp_path / "model")
    names = {"config.json", "tokenizer.json", "tokenizer_config.json"}
    assert names == {path.name for path in folder.iterdir()}
    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    assert VOCABULARY == config["vocab_size"] == len(vocabulary)
    assert set(range(VOCABULARY)) == set(vocabulary.values())
    assert [("<unk>", 0), ("<s>", 1), ("</s>", 2)] == [
        (token["content"], token["id"]) for token in tokenizer["added_tokens"]
    ]


def test_a_server_answers_for_as_long_as_the_block_lasts(tmp_path: Path) -> None:
    """Ready inside, gone afterwards; what it printed is kept."""
    with Server(pretend(tmp_path, PRETEND), Options(), tmp_path, ready_s=30) as server:
        assert is_ready(server.url)
        assert [] == engine_cores(server.pid)
    assert not is_ready(server.url)
    assert "asked" in server.log.read_text()
    assert (tmp_path / MODEL / "config.json").exists()


def test_a_server_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    """SIGTERM first; after the patience SIGKILL to its whole group."""
    server = Server(pretend(tmp_path, TIMID + PRETEND), Options(), tmp_path, ready_s=30).start()
    assert -9 == server.stop(patience_s=0.2)
    assert not is_ready(server.url)


def test_a_server_that_ends_before_it_is_ready_says_what_it_printed(tmp_path: Path) -> None:
    """The exit code and the last lines of its log."""
    broken = pretend(tmp_path, "import sys; print('no such flag'); sys.exit(3)")
    with pytest.raises(ServerFailed, match=r"ended with 3 .*no such flag"):
        Server(broken, Options(), tmp_path, ready_s=30).start()


def test_a_server_that_never_gets_ready_is_stopped_at_the_deadline(tmp_path: Path) -> None:
    """The message says how long it was given, and nothing is left running."""
    slow = pretend(tmp_path, "import time; time.sleep(600)")
    server = Server(slow, Options(), tmp_path, ready_s=0.5)
    with pytest.raises(ServerFailed, match=r"not ready in 0\.5 s: nothing"):
        server.start()
    assert -15 == server.stop()


def test_a_server_that_was_not_started_has_no_process(tmp_path: Path) -> None:
    """Asking for its process is a plain error."""
    with pytest.raises(ServerFailed, match="not started"):
        Server(ENVIRONMENT, Options(), tmp_path).stop()
