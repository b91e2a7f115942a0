"""The command line: one short file per verb; heavy imports live inside the commands."""

from __future__ import annotations

import signal
import sys
import warnings

import typer

from ttabench.errors import UserError, tell_warnings

app = typer.Typer(
    name="ttabench",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A benchmark harness for test-time adaptation of image classifiers.",
)


@app.callback(invoke_without_command=True)
def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and leave.", is_eager=True),
) -> None:
    if version:
        from ttabench import __version__

        print(f"ttabench {__version__}")
        raise typer.Exit


def _register() -> None:
    from ttabench.cli import (
        cite,
        compare,
        conform,
        data,
        diff,
        doctor,
        figure,
        listing,
        report,
        status,
        sweep,
        train,
    )

    for module in (sweep, report, compare, diff, figure, train, data, listing, status, conform, cite, doctor):
        module.register(app)


_register()


def main() -> None:
    """Entry point: a user's mistake is one sentence and exit code 2; Ctrl-C is 130."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # schedulers send it: leave as on Ctrl-C
    try:
        with warnings.catch_warnings():
            tell_warnings(lambda warning: print(f"ttabench: warning: {warning}", file=sys.stderr))
            app()
    except UserError as problem:
        print(f"ttabench: {problem}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(1)
    except KeyboardInterrupt:
        print("ttabench: interrupted.", file=sys.stderr)
        sys.exit(130)
