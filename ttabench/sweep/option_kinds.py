"""The kinds of values in a sweep file: how each is checked, and its JSON schema."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from ttabench.errors import UserError, one_line, shortened, unknown

Schema = dict[str, Any]
NAME = r"[^,\[\]]+(\[[^\[\]]*\])?"  # of a method, perhaps with settings, of a dataset or an architecture


class Kind(Protocol):
    """The values an option takes. `check` raises UserError, with its `name`, for what `schema` refuses."""

    @property
    def schema(self) -> Schema: ...

    def check(self, value: Any, name: str) -> None: ...


def refused(value: Any, name: str, expected: str) -> UserError:
    """The error for a bad value: ``limit = "few": expected …``"""
    return UserError(f"{name} = {spelled(value)}: expected {expected}.")


def spelled(value: Any) -> str:
    """A value as TOML spells it, shortened: ``true``, ``"fog"``, ``[1, 2]``."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{one_line(shortened(value))}"'
    if isinstance(value, list):
        return shortened(f"[{', '.join(map(spelled, value))}]")
    return "a table" if isinstance(value, dict) else str(value)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True)
class Names:
    """A name, or a list of them.

    known    all valid ones; () if installed packages decide.
    pattern  a regular expression of further ones; "" = there are none.
    """

    example: str
    known: tuple[str, ...] = ()
    pattern: str = ""

    @property
    def schema(self) -> Schema:
        one: Schema = {"type": "string", "pattern": f"^{NAME}$"}
        if self.known:
            one = {"type": "string", "enum": list(self.known)}
        if self.pattern:
            one = {"anyOf": [one, {"type": "string", "pattern": f"^{self.pattern}$"}]}
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1, "uniqueItems": True}]}

    def check(self, value: Any, name: str) -> None:
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not names or not all(isinstance(one, str) for one in names):
            raise refused(value, name, f"a name or a list of names, e.g. {self.example}")
        for one in names:
            if self.known and one not in self.known and not re.fullmatch(self.pattern, one):
                raise unknown(f"value of {name}", one, self.known, "`ttabench sweep --help`")
            if not re.fullmatch(NAME, one):
                raise refused(value, name, f"a list of names, each in quotes, e.g. {self.example}")
        if twice := next((one for one in names if names.count(one) > 1), ""):
            raise UserError(f"{name} = {spelled(value)} names '{twice}' twice; name each once.")


@dataclass(frozen=True)
class Numbers:
    """A whole number, or a list of them."""

    least: int
    most: int
    example: str

    @property
    def schema(self) -> Schema:
        one = {"type": "integer", "minimum": self.least, "maximum": self.most}
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1, "uniqueItems": True}]}

    def check(self, value: Any, name: str) -> None:
        numbers = value if isinstance(value, list) else [value]
        if not numbers or not all(is_whole(n) and self.least <= n <= self.most for n in numbers):
            most = "" if self.most >= 2**31 else f" to {self.most}"
            least = f"from {self.least}{most}" if most else f"of {self.least} or more"
            raise refused(value, name, f"a whole number {least}, or a list of them, e.g. {self.example}")
        if len(set(numbers)) != len(numbers):
            raise UserError(f"{name} = {spelled(value)} names a number twice; name each once.")


@dataclass(frozen=True)
class Count:
    """A whole number of at least `least`; perhaps also the text `word`."""

    least: int = 0
    word: str = ""

    @property
    def schema(self) -> Schema:
        number = {"type": "integer", "minimum": self.least, "maximum": 2**31 - 1}
        return {"anyOf": [number, {"const": self.word}]} if self.word else number

    def check(self, value: Any, name: str) -> None:
        if (self.word and value == self.word) or (is_whole(value) and self.least <= value < 2**31):
            return
        other = f"{self.word} or " if self.word else ""
        most = " and below 2,147,483,648" if is_whole(value) and value >= 2**31 else ""
        raise refused(value, name, f"{other}a whole number, {self.least} or larger{most}")


@dataclass(frozen=True)
class Number:
    """A number of at least 0, and less than `below`."""

    below: float = 0.0

    @property
    def schema(self) -> Schema:
        return {"type": "number", "minimum": 0} | ({"exclusiveMaximum": self.below} if self.below else {})

    def check(self, value: Any, name: str) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value < (self.below or float("inf")):
            limit = f" and less than {self.below:g}" if self.below else ""
            raise refused(value, name, f"a number, 0 or larger{limit}")


@dataclass(frozen=True)
class Choice:
    """One of some words, or a text of the form of a `pattern`, which `form` describes."""

    words: tuple[str, ...]
    pattern: str = ""
    form: str = ""

    @property
    def schema(self) -> Schema:
        words: Schema = {"type": "string", "enum": list(self.words)}
        form = {"type": "string", "pattern": f"^{self.pattern}$"}
        return {"anyOf": [words, form]} if self.pattern else words

    def check(self, value: Any, name: str) -> None:
        if value in self.words and isinstance(value, str):
            return
        if not isinstance(value, str):
            forms = [self.form] if self.form else []
            raise refused(value, name, f"one of {', '.join([*map(spelled, self.words), *forms])}")
        if not self.pattern:
            raise unknown(f"value of {name}", value, self.words)
        if not re.fullmatch(self.pattern, value):
            words = [word or "nothing" for word in self.words]
            raise refused(value, name, f"{', '.join(words)} or {self.form}")


@dataclass(frozen=True)
class Text:
    """Any text."""

    what: str

    @property
    def schema(self) -> Schema:
        return {"type": "string"}

    def check(self, value: Any, name: str) -> None:
        if not isinstance(value, str):
            raise refused(value, name, f"{self.what}, in quotes")


@dataclass(frozen=True)
class Settings:
    """Settings of methods: a table per method, or texts ``method.key=value[,value…]``."""

    PATTERN = r"[^.=]+\.[^.=]+=.+"

    @property
    def schema(self) -> Schema:
        one = {"type": ["string", "number", "boolean"]}
        values = {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}
        table = {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": values}}
        texts = {"type": "array", "items": {"type": "string", "pattern": f"^{self.PATTERN}$"}}
        return {"anyOf": [table, texts]}

    def check(self, value: Any, name: str) -> None:
        if isinstance(value, list):
            for text in value:
                if not isinstance(text, str) or not re.fullmatch(self.PATTERN, text):
                    raise refused(value, name, 'texts of the form "method.key=value"')
            return
        if not isinstance(value, dict):
            raise refused(value, name, "a table for each method, e.g. [set.tent] with lr = 0.001")
        for method, settings in value.items():
            if not isinstance(settings, dict):
                raise refused(settings, f"{name}.{method}", "a table of settings, e.g. lr = 0.001")
            for key, given in settings.items():
                values = given if isinstance(given, list) else [given]
                if not values or not all(isinstance(v, str | int | float) for v in values):
                    raise refused(given, f"{name}.{method}.{key}", "a value, or a list of values")
