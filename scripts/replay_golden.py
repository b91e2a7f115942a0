"""Replay a folder of golden traces: recorded outputs of official implementations, against ours.

One line per trace: the largest absolute logit difference in float64 and in float32, the largest
difference of a parameter's norm, the bound that rounding alone may reach in float32, and the verdict,
which is float64's: ok up to 1e-6. Exit status 1 where any trace fails, 2 where there is none.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from bench_suite import arguments

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "golden"))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("folder", help="a folder with models.npz, inputs.npz and traces/*.npz")
    parser.add_argument("--only", default="", help="only the traces whose name starts with this")
    options = parser.parse_args()

    import torch
    from replay import Folder, judge

    from ttabench.errors import UserError

    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    try:
        for trace in Folder(options.folder).traces():
            if trace.name.startswith(options.only):
                verdict = judge(trace)
                counts[verdict.status] += 1
                print(verdict, flush=True)
        if not counts:
            raise UserError(f"no trace in '{options.folder}' is called '{options.only}…'.")
    except UserError as problem:
        print(problem, file=sys.stderr)
        return 2
    print(" ".join(f"{status}={counts[status]}" for status in ("ok", "FAIL", "unsupported")))
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
