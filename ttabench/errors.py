"""Errors and warnings for users: one clear sentence, the nearest valid name, and how to fix it.

Text from a folder or a file may hold escape codes, which a terminal obeys, marks that turn the direction of
writing, line breaks that begin a line of their own, and words that GitHub Actions takes for its commands.
:func:`printable`, :func:`one_line` and :func:`plain` make it harmless.
"""

from __future__ import annotations

import re
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher, get_close_matches
from typing import Any

TERMINATED = 128 + signal.SIGTERM
"""The exit code after SIGTERM."""
NO_MEMORY = (
    "out of memory",  # of CUDA and its driver, Triton, HIP
    "DefaultCPUAllocator",
    "ALLOC_FAILED",  # of cuBLAS, cuDNN, cuSOLVER, cuFFT
    "ALLOCATION_FAILED",  # of cuDNN 9
)
"""Parts of the texts of a plain RuntimeError, which torch raises on the CPU and for the libraries of CUDA."""
UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""Control characters, marks of direction, characters without width, and halves of surrogate pairs."""
_BREAK = re.compile(r"\s*[\n\r\t\x0b\x0c\x85\u2028\u2029]\s*")
_COMMAND = re.compile(r"::(?=[\w-]+[^:]*::)|##(?=\[)")
"""``::error file=x::text`` and ``##[error]text``, which a wrapped line may begin with."""
_LINE_OF_COMMAND = re.compile(r"^(\s*)(?:::(?=[\w-]+[^:\n]*::)|##(?=\[))", re.MULTILINE)


class UserError(Exception):
    """A mistake of the caller. The command line prints it without a traceback and exits with 2.

    Control characters in the text, for example in a file name, are replaced, since a terminal executes them.
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(printable(text))


class UnknownName(UserError):
    """An unknown name; see :func:`unknown`."""


class NothingToReport(UserError):
    """A report format does not apply to these results; an error only if it was requested by name."""


class UnusableModel(Exception):
    """A model or method produced something that cannot be scored (NaN logits, wrong shape)."""


class Alarm(UserWarning):
    """A method cannot work with its settings or on its data; its results are kept."""


def warn_of_setting(method: str, alarm: str) -> str:
    """Warn that a method cannot work with a setting; returns `alarm`, for `Method.alarms`."""
    warnings.warn(f"{method}: {alarm}", Alarm, stacklevel=3)
    return alarm


def warn_of_network(method: str, sentence: str) -> None:
    """Warn that a method leaves out a part of the network; nothing for an empty sentence."""
    if sentence:
        warnings.warn(f"{method}: {sentence}.", UserWarning, stacklevel=3)


def is_sigterm(problem: BaseException) -> bool:
    """Whether SIGTERM came, which the command line raises as SystemExit."""
    return isinstance(problem, SystemExit) and problem.code == TERMINATED


@contextmanager
def exit_is_an_error() -> Iterator[None]:
    """In the block, `exit()` raises RuntimeError; otherwise code of others could end all without a word."""
    try:
        yield
    except SystemExit as leaving:
        if is_sigterm(leaving):
            raise
        said = f"its code calls exit({'' if leaving.code is None else repr(leaving.code)})"
        problem = RuntimeError(f"{said}, which would end the whole process; raise an exception instead")
        raise problem.with_traceback(leaving.__traceback__) from None


def forward_warnings(forward: Callable[[UserWarning], None]) -> None:
    """Pass every UserWarning to `forward`, once; drop all other warnings.

    Alarms that differ only in their numbers count as one: the alarm of each cell is stored with its result.
    `warnings.catch_warnings` restores the previous behaviour.
    """
    seen: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_where: object, **_more: object) -> None:
        if not issubclass(category, UserWarning):
            return
        kind = Alarm if issubclass(category, Alarm) else UserWarning
        text = str(message)
        same = re.sub(r"(?<![\w.])\d[\d.]*(e[-+]?\d+)?", "", text) if kind is Alarm else text
        if same not in seen:
            seen.add(same)
            forward(kind(text))

    warnings.simplefilter("always", UserWarning)
    # Images on disk are mapped into memory and only read; torch warns that they could be written to.
    warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
    # Pillow's remarks on damaged notes and on transparency name no file, and change no pixel.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
    warnings.showwarning = show


def printable(text: str) -> str:
    r"""`text` with everything that is not printed, but tab and newline, shown as its code.

    Marks of direction are among it, and a line that would be a command of GitHub Actions is none any more.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    text = UNSAFE.sub(lambda match: match[0] if match[0] in "\t\n" else _code(match), text)
    return _LINE_OF_COMMAND.sub(lambda match: match[1] + " ".join(match[0].strip()), text)


def one_line(text: str) -> str:
    r"""`text` in one line, with everything that is not printed shown as its code.

    >>> one_line("a\x1b[31mb\n::error::c")
    'a\\x1b[31mb : :error::c'
    """
    if text.isascii() and text.isprintable() and "::" not in text and "##" not in text:
        return text
    text = UNSAFE.sub(_code, _BREAK.sub(" ", text))
    return _COMMAND.sub(lambda match: " ".join(match[0]), text)


def plain(value: Any) -> Any:
    """Data from JSON with every text in it as :func:`one_line`, tracebacks as :func:`printable`."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, dict):
        return {
            one_line(key): printable(inner) if key == "traceback" and isinstance(inner, str) else plain(inner)
            for key, inner in value.items()
        }
    return value


def _code(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def first_line(problem: BaseException) -> str:
    """The first line of an exception's text; its type where there is no text."""
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]


def said(problem: BaseException) -> str:
    """The text of an exception; "" where its class fails to make one."""
    try:
        return str(problem)
    except Exception:
        return ""


def out_of_memory(problem: BaseException) -> bool:
    """Whether this process or its GPU ran out of memory. Torch need not be imported."""
    torchs = any(kind.__name__ == "OutOfMemoryError" for kind in type(problem).__mro__)
    text = said(problem)
    named = isinstance(problem, RuntimeError) and any(words in text for words in NO_MEMORY)
    return torchs or named or isinstance(problem, MemoryError)


def shortened(text: str, length: int = 80) -> str:
    """`text`, or its beginning and its length where it is longer than `length` characters."""
    return text if len(text) <= length else f"{text[:length]}… ({len(text):,} characters)"


def first_of(texts: Sequence[str], shown: int = 4) -> str:
    """``tent, sar and 3 more``: the first texts, and how many more there are."""
    more = f" and {len(texts) - shown} more" if len(texts) > shown else ""
    return ", ".join(texts[:shown]) + more


MAX_LISTED = 25  # an error lists all valid names if there are at most this many


def counted(number: float, word: str) -> str:
    """``1 cell``, ``2 cells``, ``0.5 points``"""
    text = f"{number:g}" if isinstance(number, float) else f"{number}"
    return f"{text} {word}{'s' * (number != 1)}"


def unknown(kind: str, name: str, valid: Iterable[str], see: str = "") -> UnknownName:
    """The error for an unknown name, with the nearest valid names.

    It lists all valid names if there are few; otherwise it refers to `see`.

    >>> str(unknown("method", "tnet", ["tent", "source"]))
    "unknown method 'tnet'; did you mean 'tent'? Valid: source, tent."
    >>> str(unknown("model", "resnet19", ["resnet18", *(f"x{i}" for i in range(30))], "`list`"))
    "unknown model 'resnet19'; did you mean 'resnet18'? See `list`."
    """
    choices = sorted(valid)
    few = len(choices) <= MAX_LISTED
    spelt = {choice.lower(): choice for choice in choices}
    near = [spelt[n] for n in get_close_matches(name.lower(), spelt, n=3, cutoff=0.5)]
    if few:  # all are listed anyway: name the nearest one, and those that are as near
        likeness = {n: SequenceMatcher(None, n.lower(), name.lower()).ratio() for n in near}
        near = sorted(n for n in near if likeness[n] == max(likeness.values()))
    hint = f"; did you mean {_either(near)}?" if near else "."
    if few:
        rest = f"Valid: {', '.join(choices) or 'none'}."
    else:
        rest = f"See {see}." if see else f"There are {len(choices):,} names."
    return UnknownName(f"unknown {kind} '{one_line(shortened(name))}'{hint} {rest}")


def _either(names: Sequence[str]) -> str:
    """'a', 'b' or 'c'"""
    *most, last = (f"'{name}'" for name in names)
    return f"{', '.join(most)} or {last}" if most else last
