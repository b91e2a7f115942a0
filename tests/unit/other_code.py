"""Results of other code than the installed one, for tests: a definition has another hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import pytest

from ttabench.provenance import forget, modules, roots, staleness
from ttabench.provenance.roots import Code

CHANGED = "ttabench/nn/batch_norm.py: AdaptiveBatchNorm.forward"


def code(definitions: Mapping[str, str]) -> Code:
    """Code of these definitions alone."""
    text = "\n".join(f"{name} {digest}" for name, digest in sorted(definitions.items()))
    return Code(hashlib.sha256(text.encode()).hexdigest(), dict(definitions))


def with_further(monkeypatch: pytest.MonkeyPatch, further: Mapping[str, str]) -> None:
    """From now on the installed code of each cell has these definitions too, or with these hashes."""

    @staleness.lru_cache(maxsize=None)
    def made(installed: _Same) -> Code:
        return code({**installed.code.definitions, **further})

    monkeypatch.setattr(staleness, "current_code", lambda *of: made(_Same(roots.current_code(*of))))


def changed(monkeypatch: pytest.MonkeyPatch, name: str = CHANGED) -> None:
    """From now on a definition of the installed code is another one."""
    with_further(monkeypatch, {name: "0" * 16})


def installed(monkeypatch: pytest.MonkeyPatch, definitions: Mapping[str, str] | None = None) -> None:
    """From now on the installed code of each cell has only these definitions; None: what really is."""
    found = None if definitions is None else code(definitions)
    monkeypatch.setattr(staleness, "current_code", lambda *of: found or roots.current_code(*of))


class _Same:
    """Code, hashable by identity."""

    def __init__(self, code: Code) -> None:
        self.code = code

    def __hash__(self) -> int:
        return id(self.code)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.code is self.code


class Edits:
    """The modules of ttabench with other texts than their files have."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: dict[str, str] = {}
        monkeypatch.setattr(modules, "module_text", self._bytes)
        forget()

    def _bytes(self, name: str) -> bytes | None:
        text = self.text(name)
        return None if text is None else text.encode()

    def text(self, name: str) -> str | None:
        """The text of a module; None where there is none."""
        if name not in self.texts:
            file = modules.module_file(name)
            return file.read_text() if file is not None and file.suffix == ".py" else None
        return self.texts[name]

    def edit(self, module: str, *changes: tuple[str, str]) -> None:
        """Replace parts of a module's text, each of which must be there."""
        text = self.text(module)
        assert text is not None, module
        for old, new in changes:
            assert old in text, f"{module} has no {old}"
            text = text.replace(old, new)
        self.write(module, text)

    def write(self, module: str, text: str) -> None:
        """Give a module this text. It may be a new one."""
        self.texts[module] = text
        forget()

    def undo(self) -> None:
        self.texts.clear()
        forget()
