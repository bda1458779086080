"""What an answer without vLLM's metrics means, and what would help. Pure."""

from collections.abc import Mapping

from collectors.scrape.entry import Entry
from collectors.scrape.outcome import Outcome

_TOKEN = "--bearer-token-file FILE or PREEMPT_BEARER_TOKEN gives one"  # noqa: S105 (no token)
_MEANINGS: Mapping[Outcome, str] = {
    Outcome.REFUSED: "nothing listens there; is the server up, and is this its port?",
    Outcome.UNREACHABLE: "that host cannot be reached from here",
    Outcome.DNS: "the host's name does not resolve",
    Outcome.TLS: "no TLS that is trusted here; --ca-file FILE gives the authority, or is it http?",
    Outcome.TOO_MANY_SAMPLES: "the metrics page holds more samples than one collector takes",
    Outcome.TIMEOUT: "no whole answer in time; --timeout gives it more",
    Outcome.DISCONNECTED: "the connection was closed without an answer",
    Outcome.BAD_HTTP: "what answers does not speak HTTP; is it https, or another port?",
    Outcome.CREDENTIALS: "the token cannot be read",
    Outcome.REDIRECT: "redirects, which is not followed with a token; give the final address",
    Outcome.HTTP_401: f"wants a token; {_TOKEN}",
    Outcome.HTTP_403: f"refuses whoever asks, or this token; {_TOKEN}",
    Outcome.HTTP_404: "there is no metrics page; give the server's own address",
    Outcome.HTTP_500: "the metrics page fails with 500; its log says why",
    Outcome.HTTP_503: "not ready, or shutting down (503); try again",
    Outcome.EMPTY: "the metrics page is empty",
    Outcome.NOT_VLLM: "there is a metrics page, but nothing on it is vLLM's",
    Outcome.UNPARSABLE: "what is there is no metrics page",
    Outcome.TRUNCATED: "the metrics page stops before its end",
    Outcome.TOO_LARGE: "the metrics page is too large to be one",
    Outcome.BAD_ENCODING: "the metrics page is compressed in a way nobody asked for",
}
# What the metrics of other servers begin with.
_OTHERS = {
    "sglang:": "SGLang",
    "sglang_": "SGLang",
    "tgi_": "Text Generation Inference",
    "llamacpp:": "llama.cpp",
    "nv_trt_llm_": "TensorRT-LLM",
    "trtllm_": "TensorRT-LLM",
    "nv_inference_": "Triton",
    "lmdeploy:": "LMDeploy",
    "prometheus_": "Prometheus itself",
    "node_": "a node exporter",
}
# Only these leave it open that vLLM is there after all: its /version answers beside them.
BESIDE_VLLM = frozenset(
    {
        Outcome.EMPTY,
        Outcome.NOT_VLLM,
        Outcome.UNPARSABLE,
        Outcome.TRUNCATED,
        Outcome.TOO_LARGE,
        Outcome.TOO_MANY_SAMPLES,
        Outcome.BAD_ENCODING,
        Outcome.HTTP_404,
        Outcome.HTTP_500,
        Outcome.HTTP_503,
        Outcome.HTTP_5XX,
    }
)


def meaning(entry: Entry) -> str:
    """What became of the page, in words."""
    said = _MEANINGS.get(entry.outcome) or f"the metrics page answers with {entry.status}"
    if entry.outcome is Outcome.NOT_VLLM and (other := _other(entry.page or "")):
        return f"this is {other}, not vLLM"
    return said


def remedy(outcome: Outcome) -> str | None:
    """What makes such a page of vLLM whole, where that is known."""
    match outcome:
        case Outcome.EMPTY | Outcome.NOT_VLLM:
            return (
                "was it started with --disable-log-stats, or with PROMETHEUS_MULTIPROC_DIR on"
                " something that is not a local, writable disk?"
            )
        case Outcome.HTTP_500:
            return "a PROMETHEUS_MULTIPROC_DIR on a network volume does this"
        case Outcome.HTTP_404:
            return "does a proxy in front of it hide /metrics?"
    return None


def _other(page: str) -> str | None:
    for line in page.splitlines():
        name = line.removeprefix("# HELP ").removeprefix("# TYPE ")
        for beginning, server in _OTHERS.items():
            if name.startswith(beginning):
                return server
    return None
