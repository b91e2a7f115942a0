"""Show that a change of code changed no number of a results folder, by a sample of its cells.

The sample has cheap cells of each kind of cell that the change reaches, and every changed function has to run
in it with all its branches. `measured_again` compares new bits with the stored ones, and `side_by_side`
compares what the old and the new code compute. What the sample does not show is refused, and stays stale.
The draw depends on the code and on the folder, so that nobody can look for a seed that agrees; numbers that
disagree are stored too, and are refused until the code changes. What did not run is decided anew each time.
"""

from ttabench.sweep.attestation.groups import Group, Outcome, Shown, Way, groups_of, names_in, texts_of
from ttabench.sweep.attestation.judge import attest, to_try
from ttabench.sweep.attestation.words import listed, listed_json, summary, to_json

__all__ = [
    "Group",
    "Outcome",
    "Shown",
    "Way",
    "attest",
    "groups_of",
    "listed",
    "listed_json",
    "names_in",
    "summary",
    "texts_of",
    "to_json",
    "to_try",
]
