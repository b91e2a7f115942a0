"""The append-only store: results survive kill -9, full disks and many writers. Never imports torch.

A results folder holds ``sweep.json`` (the options of the sweep), ``plan.jsonl`` (every planned cell, with the
reason if it cannot be run) and ``cells/*.jsonl``: one shard per writer, one JSON record per line, each
appended by a single ``os.write`` and ``fsync``. The last record of a cell counts; an incomplete last line is
ignored. CSV and other tables are exports.
"""

from ttabench.store.record import Record
from ttabench.store.results_folder import Store, load_frame
from ttabench.store.writer import Writer

__all__ = ["Record", "Store", "Writer", "load_frame"]
