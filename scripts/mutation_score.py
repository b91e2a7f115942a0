"""The share of mutations that the tests noticed, from ``mutmut export-cicd-stats``; fails below --least.

A mutation that no test runs counts as one that survived.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

NOTICED = ("killed", "timeout", "segfault", "suspicious")
UNNOTICED = ("survived", "no_tests")


def score(counts: dict[str, int]) -> float:
    """Percent of the mutations tried that were noticed. Raises SystemExit where none was tried."""
    noticed = sum(counts[name] for name in NOTICED)
    tried = noticed + sum(counts[name] for name in UNNOTICED)
    if not tried:
        raise SystemExit("no mutation was tried")
    return 100 * noticed / tried


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stats", type=Path, help="mutants/mutmut-cicd-stats.json")
    parser.add_argument("--least", type=float, default=0.0, help="percent")
    options = parser.parse_args()
    killed = score(json.loads(options.stats.read_text()))
    print(f"{killed:.1f} % of the mutations were noticed; at least {options.least:g} % are required")
    sys.exit(killed < options.least)


if __name__ == "__main__":
    main()
