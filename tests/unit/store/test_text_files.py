"""Text files are UTF-8, whatever the locale is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ttabench.sweep.sweep_file import read_sweep_file

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_sweep_files_and_results_folders_are_read_in_any_locale(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        """
import locale, sys
from pathlib import Path
from ttabench.store import Store
from ttabench.sweep.sweep_file import read_sweep_file

assert locale.getpreferredencoding(False).lower() not in ("utf-8", "utf8")
root = Path(sys.argv[1])
(root / "sweep.toml").write_bytes('out = "résultats"'.encode())
assert read_sweep_file(root / "sweep.toml")["out"] == "r\\xe9sultats"
options = {"checkpoint": "r\\xe9seau.pth"}
Store.create(root / "results", options)
assert Store.at(root / "results").sweep() == options
""",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, **ASCII},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_sweep_file_may_begin_with_a_byte_order_mark_and_have_line_ends_of_windows(tmp_path: Path) -> None:
    lines = ['methods = ["source", "tent[lr=0.01]"]', "limit = 50", ""]
    plain, marked = tmp_path / "plain.toml", tmp_path / "marked.toml"
    plain.write_bytes("\n".join(lines).encode())
    marked.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert read_sweep_file(marked) == read_sweep_file(plain)
