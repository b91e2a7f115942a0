"""Check that a folder can be written, before the work whose results go there begins."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ttabench.errors import UserError, printable, shortened


def check_folder(folder: Path) -> None:
    """Raises UserError unless files can be made in `folder`, or it can be made. Leaves nothing behind.

    A results folder is refused: what is made of results does not belong among them.
    """
    try:
        if (folder / "sweep.json").exists():
            raise UserError(f"--out {printable(str(folder))} is a results folder; choose another --out.")
        whole = Path(os.path.realpath(folder))  # `resolve` fails for a link to itself
        if whole.name in ("cells", "running") and (whole.parent / "sweep.json").exists():
            raise UserError(
                f"--out {printable(str(folder))} is a part of a results folder; choose another --out."
            )
        places = (folder.absolute(), *folder.absolute().parents)
        there = next(place for place in places if os.path.lexists(place))
        if not there.is_dir():
            what = "not a folder" if there.exists() else "a link that leads nowhere"
            raise UserError(f"--out: {there} is {what}; choose another --out.")
        with tempfile.TemporaryDirectory(dir=there) as probe:
            Path(probe, *folder.absolute().relative_to(there).parts).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(
            f"--out {shortened(str(folder))} is not a folder that can be written to ({problem.strerror}); "
            "choose another --out."
        ) from None
