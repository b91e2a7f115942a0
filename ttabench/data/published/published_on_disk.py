"""What the published datasets share: facts that say what the files should be."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ttabench.data.on_disk import OnDisk
from ttabench.data.published.description import PublishedDataset
from ttabench.errors import UserError


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

    def check_present(self, *files: Path) -> None:
        """Raise UserError where one of these files is missing."""
        for file in files:
            if not file.is_file():
                raise UserError(
                    f"{self.name} is not here: {file} is missing; run `ttabench data fetch {self.name}`, "
                    "or set TTABENCH_DATA to the folder that holds it."
                )
