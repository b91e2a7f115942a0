"""In which environments the cells of a table were measured, where these differ."""

from __future__ import annotations

import pandas as pd

COLUMNS = ("device", "processor", "threads", "versions")


def difference(cells: pd.DataFrame) -> str:
    """How the environments of the measured cells differ, as a sentence; "" where they do not.

    It names each fact with its values, as in ``device cpu or cuda; torch 2.5.0 or 2.6.0``. A library
    that some cells do not record is no difference: methods and networks may use libraries that others do not.
    """
    measured = cells[cells["accuracy"].notna()]
    values: dict[str, dict[str, None]] = {}
    for *facts, versions in measured[list(COLUMNS)].drop_duplicates().itertuples(index=False):
        words = str(versions).replace("not installed", "not-installed").split()
        libraries = zip(words[::2], words[1::2], strict=False)
        for name, value in (*zip(COLUMNS[:-1], facts, strict=True), *libraries):
            if value:
                values.setdefault(name, {})[str(value)] = None
    texts = [f"{name} {' or '.join(sorted(several))}" for name, several in values.items() if len(several) > 1]
    return f"The cells were not all measured in one environment: {'; '.join(texts)}." if texts else ""
