"""What all datasets made of files share: pieces, their fingerprint, and noticing that one changed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from ttabench.corruptions.names import SEVERITIES
from ttabench.data.dataset import Dataset
from ttabench.data.files.fingerprint import combine, file_sha256, files_sha256, folder_sha256
from ttabench.data.published.facts import Published
from ttabench.errors import UserError, unknown


class OnDisk(Dataset):
    """A dataset whose images and labels come from files and folders, its pieces.

    `kind` is part of the fingerprint, so that published and locally made data never share one even
    where their bytes are equal; so is `version`, to be raised whenever the same bytes are read into
    other pixels or labels.
    """

    kind: ClassVar[str] = "published"
    version: ClassVar[int] = 1

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    @abstractmethod
    def pieces(self) -> dict[str, Path]:
        """Every file and folder this dataset is read from, by a name that does not depend on the place."""

    def selection(self, piece: str) -> Sequence[str]:
        """The files of a folder that are read, where that is not all of them."""
        return ()

    def severities(self, corruption: str) -> tuple[int, ...]:
        """Those that should be there, out of 1 … 5."""
        return SEVERITIES

    def fingerprint(self) -> str:
        """SHA-256 (hex) over all pieces: their bytes and, in folders, the names of the files.

        Files are looked at anew in every call; folders once, and again whenever they are read from.
        """
        hashes = {}
        for name, path in self.pieces().items():
            try:
                hashes[name] = self._folder_known(name) if path.is_dir() else file_sha256(path)
            except OSError as problem:
                raise UserError(f"{path} can no longer be read ({problem.strerror}).") from None
        return combine({f"{self.kind} {self.version}": combine(hashes)})

    def folder_hash(self, name: str) -> str:
        """The hash of a folder about to be read; a change shows in :meth:`fingerprint` from here on."""
        return self._hash_folder(name, quick=False)

    def _folder_known(self, name: str) -> str:
        return self._folders.get(name) or self._hash_folder(name, quick=True)

    def _hash_folder(self, name: str, *, quick: bool) -> str:
        path, only = self.pieces()[name], self.selection(name)
        self._folders[name] = files_sha256(path, only) if only else folder_sha256(path, quick=quick)
        return self._folders[name]

    def check_asked(self, corruption: str, severity: int) -> None:
        """Raise UserError for a corruption this dataset does not have, or a severity outside 1 … 5."""
        if corruption not in self.corruptions:
            raise unknown(f"corruption of {self.name}", corruption, self.corruptions)
        if severity not in SEVERITIES:
            raise UserError(f"{self.name} has no severity {severity}; severities are 1 to 5.")


class OfPublished(OnDisk):
    """A published dataset; `facts` says what there should be."""

    def __init__(self, facts: Published, root: Path) -> None:
        super().__init__()
        self.facts = facts
        self.name = facts.name
        self.num_classes = facts.num_classes
        self.image_size = facts.image_size
        self.mean, self.std = facts.mean, facts.std
        self.clean_folder = root / facts.clean_folder
        self.corrupted_folder = root / facts.corrupted_folder
