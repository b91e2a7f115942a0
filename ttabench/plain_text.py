"""Text that comes from a folder, made harmless for terminals and logs of continuous integration.

A stored name or reason may hold escape codes, which a terminal obeys, marks that turn the direction of
writing, line breaks that begin a line of their own, and words that GitHub Actions takes for its commands.
"""

from __future__ import annotations

import re
from typing import Any

UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""Control characters, marks of direction, characters without width, and halves of surrogate pairs."""
_BREAK = re.compile(r"\s*[\n\r\t\x0b\x0c\x85\u2028\u2029]\s*")
_COMMAND = re.compile(r"::(?=[\w-]+[^:]*::)|##(?=\[)")
"""``::error file=x::text`` and ``##[error]text``, which a wrapped line may begin with."""
_LINE_OF_COMMAND = re.compile(r"^(\s*)(?:::(?=[\w-]+[^:\n]*::)|##(?=\[))", re.MULTILINE)


def one_line(text: str) -> str:
    r"""`text` in one line, with everything that is not printed shown as its code.

    >>> one_line("a\x1b[31mb\n::error::c")
    'a\\x1b[31mb : :error::c'
    """
    if text.isascii() and text.isprintable() and "::" not in text and "##" not in text:
        return text
    text = UNSAFE.sub(_code, _BREAK.sub(" ", text))
    return _COMMAND.sub(lambda match: " ".join(match[0]), text)


def lines(text: str) -> str:
    """`text` with its line breaks and tabs, and everything else that is not printed shown as its code."""
    text = UNSAFE.sub(lambda match: match[0] if match[0] in "\t\n" else _code(match), text)
    return _LINE_OF_COMMAND.sub(lambda match: match[1] + " ".join(match[0].strip()), text)


def plain(value: Any) -> Any:
    """Data from JSON with every text in it as :func:`one_line`, tracebacks as :func:`lines`."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, dict):
        return {
            one_line(key): lines(inner) if key == "traceback" and isinstance(inner, str) else plain(inner)
            for key, inner in value.items()
        }
    return value


def _code(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
