"""The code that a number depends on: which definitions, their hashes, and what changed. Imports no torch.

`closure` finds the definitions, `normal_form` says what a hash covers, `roots` where a cell enters the code.
"""

import importlib

from ttabench.provenance import modules, roots
from ttabench.provenance.modules import (
    imported_modules,
    libraries,
    module_file,
    module_hash,
    network_code,
    read_method,
)
from ttabench.provenance.roots import NO_CODE, Code, code_from, current_code, shared_code
from ttabench.provenance.staleness import changes

__all__ = [
    "NO_CODE", "Code", "changes", "code_from", "current_code", "forget", "imported_modules", "libraries",
    "module_file", "module_hash", "network_code", "read_method", "shared_code",
]  # fmt: skip


_KEPT = (
    modules.module_facts, modules.module_file, modules.module_hash, modules.module_text, modules.imports_of,
    modules.method_modules, modules.network_modules, modules.libraries, modules._in_project,
    roots._code_of, roots.code_by_kind, roots.graph, roots.named_methods, roots.shown, roots.strangers,
    roots.shared_code, roots.code_from,
)  # fmt: skip


def forget() -> None:
    """Read the code again at the next question: a test or an attestation asks whether files changed."""
    importlib.invalidate_caches()
    for kept in _KEPT:
        kept.cache_clear()
