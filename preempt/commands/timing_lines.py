"""What a person has to know of modelled times: what they rest on, and where they leave it."""

from typing import TYPE_CHECKING, Any

from replay.strict import printable

if TYPE_CHECKING:
    from replay.ledger import Ledger

_SHOWN = (("TTFT", "modelled_ttft_us"), ("TPOT", "modelled_tpot_us"), ("e2e", "modelled_e2e_us"))
_BEYOND = {
    "prefill_tokens": "prefill tokens",
    "decode_requests": "decoding requests",
    "kv_tokens": "KV tokens",
}
_CONDITIONS = ("engine.version", "model.name", "device.name")


def timing_lines(ledger: "Ledger") -> list[str]:
    """Lines on a timed replay; none of another."""
    timing = ledger.receipt.get("timing")
    if timing is None:
        return []
    return [_times(ledger), *_basis(timing)]


def _times(ledger: "Ledger") -> str:
    said = []
    for name, column in _SHOWN:
        values = ledger.requests[column].drop_nulls()
        if values.len():
            p50, p95 = (values.quantile(q, "linear") or 0 for q in (0.5, 0.95))
            said.append(f"{name} p50 {p50 / 1000:,.1f} ms, p95 {p95 / 1000:,.1f} ms")
    return f"modelled times, not measured: {'; '.join(said) or 'no request got a token'}"


def _basis(timing: dict[str, Any]) -> list[str]:
    calibration, steps = timing["calibration"], timing["steps"]
    if calibration is None:
        return ["durations were given without a calibration: they describe no known engine"]
    conditions = calibration["conditions"]
    known = [printable(str(conditions[key])) for key in _CONDITIONS if key in conditions]
    weaker = "" if calibration["source"] == "steps" else ", weaker: the run has no step records"
    lines = [
        f"durations fitted to {calibration['steps']} {calibration['source']} of run"
        f" {printable(calibration['run_id'])} ({', '.join(known) or 'engine unknown'}){weaker}"
    ]
    if steps["outside"]:
        beyond = ", ".join(
            f"{steps['beyond'][key]} by {what} (up to {steps['greatest'][key]},"
            f" fitted to {calibration[key]})"
            for key, what in _BEYOND.items()
            if steps["beyond"][key]
        )
        lines.append(
            f"extrapolated: {steps['outside']} of {steps['steps']} steps, from step"
            f" {steps['outside_since']} on, beyond the fitted range: {beyond}"
        )
    return lines
