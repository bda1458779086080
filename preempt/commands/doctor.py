"""`preempt doctor`: what a newcomer runs first on a host of vLLM."""

import os
from pathlib import Path

import click

from preempt.commands import options

_SPOOL = "PREEMPTION_LEDGER_SPOOL"


@click.command("doctor")
@click.option("--url", required=True, help="The server's address, or that of its /metrics.")
@click.option(
    "--spool",
    type=options.PATH,
    help=f"The recorder's directory. [default: ${_SPOOL}, if it is set]",
)
@click.option(
    "--watch",
    default="2s",
    show_default=True,
    metavar="TIME",
    help="Time between two looks, at most 10m; a bare number is seconds.",
)
@click.option("--timeout", default="5s", show_default=True, help="Most time of one answer.")
@click.option("--bearer-token-file", type=options.PATH, help="File that holds a token.")
@click.option("--ca-file", type=options.PATH, help="Certificates (PEM) the server is checked by.")
@click.option("--cert-file", type=options.PATH, help="Client certificate (PEM).")
@click.option("--key-file", type=options.PATH, help="Its key (PEM), if it is in another file.")
@options.as_json
@click.pass_context
def doctor_command(
    context: click.Context,
    /,
    *,
    url: str,
    spool: Path | None,
    watch: str,
    timeout: str,
    bearer_token_file: Path | None,
    ca_file: Path | None,
    cert_file: Path | None,
    key_file: Path | None,
    as_json: bool,
) -> None:
    """Look at a vLLM server: what it is, what can be collected from it, what to do next.

    It is looked at twice, --watch apart, and nothing is sent but requests for its metrics
    page, its version and its list of models. With --spool, it is said whether the recorder inside
    the engine is alive and whether the spool is this engine's.

    Exit codes: 0 fine, 1 something needed is missing, 2 no vLLM could be looked at (one line).

    \b
    Examples:
      preempt doctor --url http://127.0.0.1:8000
      preempt doctor --url http://127.0.0.1:8000 --spool /var/spool/preemption
      preempt doctor --url https://vllm.example --bearer-token-file token --json | jq .now
    """
    from collectors.doctor.command import look_at
    from collectors.doctor.finding import NO_LOOK
    from collectors.doctor.seen import Asked
    from collectors.doctor.show import document, lines
    from collectors.scrape.credentials import TOKEN_VARIABLE, Credentials
    from replay.rules import CHECKED

    if spool is None and os.environ.get(_SPOOL):
        spool = Path(os.environ[_SPOOL])
    variable = (
        TOKEN_VARIABLE if bearer_token_file is None and TOKEN_VARIABLE in os.environ else None
    )
    files = {
        "--bearer-token-file": bearer_token_file,
        "--ca-file": ca_file,
        "--cert-file": cert_file,
        "--key-file": key_file,
    }
    asked = Asked(
        spool=None if spool is None else str(spool),
        options=_repeated(files),
        checked={name.removeprefix("vllm-") for name in CHECKED},
    )
    credentials = Credentials(bearer_token_file, variable, ca_file, cert_file, key_file)
    found = look_at(url, credentials, timeout=timeout, watch=watch, spool=spool, asked=asked)
    if as_json:
        options.print_json(document(found))
    if found.code == NO_LOOK:
        options.say(f"preempt: {found.headline}")
    elif not as_json:
        for line in lines(found, options.console().width):
            click.echo(line)
    context.exit(found.code)


def _repeated(files: dict[str, Path | None]) -> tuple[str, ...]:
    """Options that the next commands need, too: names of files, never what is in them."""
    import shlex

    return tuple(f"{name} {shlex.quote(str(path))}" for name, path in files.items() if path)
