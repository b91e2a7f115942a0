"""The command line: one short file per verb; heavy imports live inside the commands."""

from __future__ import annotations

import signal
import sys
import warnings
from typing import Any

import typer

from ttabench.cli._mistakes import HELP, sentence, without_types
from ttabench.errors import UserError, forward_warnings, printable

app = typer.Typer(
    name="ttabench",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": HELP},
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
        verify,
    )

    results = (sweep, report, compare, diff, verify, figure)
    for module in (*results, train, data, listing, status, conform, cite, doctor):
        module.register(app)


_register()


def command() -> Any:
    """All verbs, as the parser runs them."""
    made = typer.main.get_command(app)
    without_types(made)
    return made


def main() -> None:
    """Entry point: a user's mistake is one sentence and exit code 2; Ctrl-C is 130."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # schedulers send it: leave as on Ctrl-C
    try:
        with warnings.catch_warnings():
            forward_warnings(lambda warning: _complain(f"warning: {warning}"))
            code = command().main(prog_name="ttabench", standalone_mode=False)
    except UserError as problem:
        _complain(str(problem))
        code = 2
    except BrokenPipeError:
        code = 1
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as problem:
        if not hasattr(problem, "format_message"):
            raise
        if type(problem).__name__ == "NoArgsIsHelpError":
            print(problem.format_message())
        else:
            _complain(sentence(problem))
        code = 2
    if code == 130:
        _complain("interrupted.")
    sys.exit(code)


def _complain(text: str) -> None:
    print(f"ttabench: {printable(text)}", file=sys.stderr)
