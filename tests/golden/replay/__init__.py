"""Replays golden traces: recorded outputs of official implementations, against ours.

`trace` reads a folder, `nets` builds its nets, `registry` says how each method is replayed, one module
per family of methods registers them, and `verdict` compares.
"""

from . import replay_align, replay_entropy, replay_field, replay_more, replay_shot, replay_teacher
from .registry import Replayed, Unsupported
from .trace import Folder, Trace
from .verdict import Verdict, judge

__all__ = [
    "Folder",
    "Replayed",
    "Trace",
    "Unsupported",
    "Verdict",
    "judge",
    "replay_align",
    "replay_entropy",
    "replay_field",
    "replay_more",
    "replay_shot",
    "replay_teacher",
]
