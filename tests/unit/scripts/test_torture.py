"""A few rounds of killing sweeps at random moments; `scripts/torture.py --rounds 200` does more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "torture.py"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", ["forked", "fresh", "continual"])
def test_killed_sweeps_lose_nothing_and_compute_nothing_twice(how: str, tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--rounds", "6", "--seed", "7", "--keep", str(tmp_path)]
    done = subprocess.run(
        [*command, *([] if how == "forked" else [f"--{how}"])], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "problems=0" in done.stdout
