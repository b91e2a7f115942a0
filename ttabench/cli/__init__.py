"""The command line: one short file per verb; heavy imports live inside the commands."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
import warnings
from contextlib import redirect_stderr
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from types import FrameType
from typing import Any

import typer

from ttabench.cli._mistakes import HELP, refuse_empty_path, refuse_misread, sentence, tidy_help
from ttabench.errors import TERMINATED, UserError, forward_warnings, is_sigterm, printable, shortened
from ttabench.system.cores import ONE_NUMPY_THREAD
from ttabench.system.interrupts import leave_at_once
from ttabench.system.nonblocking import FULL, NonBlocking

VERBS = {
    "sweep": "sweep", "report": "report", "compare": "compare", "diff": "diff", "verify": "verify",
    "leaderboard": "leaderboard", "figure": "figure", "paper": "paper", "attest": "attest", "train": "train",
    "list": "listing.show", "status": "status", "conform": "conform", "compare-code": "compare_code",
    "new": "new", "cite": "cite", "doctor": "doctor",
}  # fmt: skip
"""Verb → the module here that has it, and the name of its function where this is another one."""
GROUPS = ("results", "data")
"""Verbs that have verbs of their own."""


def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    if version:
        from ttabench import __version__

        print(f"ttabench {__version__}")
        raise typer.Exit


def make_app(only: str = "") -> typer.Typer:
    """All verbs, or `only` one: importing the others would take as long as this one takes to start."""
    app = typer.Typer(
        name="ttabench",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": HELP},
        help="A benchmark harness for test-time adaptation of image classifiers.",
    )
    app.callback(invoke_without_command=True)(_root)
    for name, place in VERBS.items():
        if only in ("", name):
            module, _, function = place.partition(".")
            app.command(name)(getattr(import_module(f"ttabench.cli.{module}"), function or module))
    for name in GROUPS:
        if only in ("", name):
            app.add_typer(getattr(import_module(f"ttabench.cli.{name}"), name), name=name)
    return app


@cache
def command(only: str = "") -> Any:
    """The verbs of :func:`make_app`, as the parser runs them; made once in a process."""
    made = typer.main.get_command(make_app(only))
    tidy_help(made)
    return made


LONGEST = 400
INTERRUPTED = 128 + signal.SIGINT
ENDED = {INTERRUPTED: "interrupted.", TERMINATED: "ended by SIGTERM."}
GRACE = 4.0  # seconds after SIGTERM; schedulers send SIGKILL some seconds later


def _on_sigterm(_signal: int, _frame: FrameType | None) -> None:
    """Leave in good order, by force where that takes too long; what is stored is safe either way."""
    _leave_imports(TERMINATED)
    force = threading.Timer(GRACE, _leave_by_force, (TERMINATED,))
    force.daemon = True
    force.start()
    raise SystemExit(TERMINATED)


def _on_ctrl_c(number: int, frame: FrameType | None) -> None:
    """Leave in good order. The second waits for no thread any more, and the third for nothing."""
    _leave_imports(INTERRUPTED)
    signal.signal(number, _on_second_ctrl_c)
    signal.default_int_handler(number, frame)


def _on_second_ctrl_c(number: int, frame: FrameType | None) -> None:
    """``ttabench.__main__`` sees by the handler that it came."""
    signal.signal(number, leave_at_once)
    signal.default_int_handler(number, frame)


def _leave_imports(code: int) -> None:
    """Leave at once while torch is imported, which ignores exceptions as it imports numpy."""
    if getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False):
        _leave_by_force(code)


def _leave_by_force(code: int) -> None:
    _complain(ENDED[code])
    os._exit(code)


def main() -> None:
    """Entry point: a user's mistake is one sentence and exit code 2; Ctrl-C is 130, SIGTERM 143.

    Messages and progress do not wait for a reader, tables do.
    """
    signal.signal(signal.SIGTERM, _on_sigterm)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not in the background of a script
        signal.signal(signal.SIGINT, _on_ctrl_c)
    for name, value in ONE_NUMPY_THREAD.items():
        os.environ.setdefault(name, value)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that lacks a character gets a question mark
            stream.reconfigure(errors="replace")
    try:
        with redirect_stderr(NonBlocking.over(sys.stderr)):
            _main()
    finally:
        _forget_what_cannot_be_written()


def _open_closed_streams() -> None:
    """A stream that is closed (``2>&-``) leads nowhere; it is None in Python, and a file gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def _forget_what_cannot_be_written() -> None:
    """Python tries to write the rest of its output once more when it ends, and would change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            print(end="", file=stream, flush=True)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _main() -> None:
    try:
        with warnings.catch_warnings():
            forward_warnings(lambda warning: _complain(f"warning: {warning}"))
            refuse_empty_path(sys.argv)
            verb = "".join(sys.argv[1:2])
            root = command(verb if verb in (*VERBS, *GROUPS) else "")
            refuse_misread(root, sys.argv)
            code = root.main(prog_name="ttabench", standalone_mode=False)
            print(end="", flush=True)  # a disk that is full says so here, and not after the end
    except UserError as problem:
        _complain(str(problem))
        code = 2
    except BrokenPipeError:
        code = 1
    except OSError as problem:
        _complain(_about_path_or_disk(problem))
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except SystemExit as leaving:
        if not is_sigterm(leaving):
            raise
        code = TERMINATED
    except Exception as problem:
        if not hasattr(problem, "format_message"):
            raise
        if type(problem).__name__ == "NoArgsIsHelpError":
            print(problem.format_message())
        else:
            _complain(sentence(problem))
        code = 2
    if code in ENDED:
        _complain(ENDED[code])
    sys.exit(code)


def _about_path_or_disk(problem: OSError) -> str:
    """A sentence on a disk that is full or a file that cannot be used. Raises any other problem again."""
    if problem.errno == errno.ENAMETOOLONG:
        return f"the path {problem.filename} is too long for this system; choose a shorter one."
    if problem.errno not in FULL:
        if problem.filename is None:
            raise problem
        return f"{problem.filename} cannot be read or written ({problem.strerror})."
    what = problem.filename2 or problem.filename or "the output"  # of two, it copies the first to the second
    return f"{what} cannot be written ({problem.strerror}); free some space, and run the same command again."


def _complain(text: str) -> None:
    """Print a message; a word of more than `LONGEST` characters, such as a wrong path, is shortened."""
    text = re.sub(rf"\S{{{LONGEST + 1},}}", lambda match: shortened(match[0]), text)
    print(f"ttabench: {printable(text)}", file=sys.stderr)
