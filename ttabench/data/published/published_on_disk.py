"""What the published datasets share: facts that say what the files should be."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ttabench.data.on_disk import OnDisk
from ttabench.data.published.facts import PublishedDataset


class PublishedOnDisk(OnDisk):
    """A published dataset below the folder `root`, as `facts` describe it."""

    kind: ClassVar[str] = "published"

    def __init__(self, facts: PublishedDataset, root: Path) -> None:
        super().__init__()
        self.facts = facts
        self.name = facts.name
        self.num_classes = facts.num_classes
        self.image_size = facts.image_size
        self.mean, self.std = facts.mean, facts.std
        self.clean_folder = root / facts.clean_folder
        self.corrupted_folder = root / facts.corrupted_folder
