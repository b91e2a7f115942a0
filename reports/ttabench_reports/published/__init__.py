"""Numbers that papers printed, to stand beside ours: facts about the papers, not measurements of this tool.

``sources.toml`` says what each file holds and under which setting it was measured.
"""

from ttabench_reports.published.beside import beside
from ttabench_reports.published.catalog import COLUMNS, catalog, load, publications

__all__ = ["COLUMNS", "beside", "catalog", "load", "publications"]
