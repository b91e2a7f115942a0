"""What all datasets made of files share: a fingerprint that changes when a file changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from ttabench.corruptions.corruption_names import SEVERITIES
from ttabench.data.dataset import Dataset
from ttabench.data.files.fingerprint import combine, file_sha256, files_sha256, folder_sha256
from ttabench.errors import UserError, unknown


class OnDisk(Dataset):
    """A dataset whose images and labels come from files and folders, here called its pieces.

    kind      "published" or "local"; part of the fingerprint. Published and own datasets therefore never
              have the same fingerprint, even where their bytes are equal.
    version   part of the fingerprint; increased whenever the same bytes are read as other pixels or labels.
    """

    kind: ClassVar[str]
    version: ClassVar[int] = 1

    def __init__(self) -> None:
        self._folder_hashes: dict[str, str] = {}

    @abstractmethod
    def pieces(self) -> dict[str, Path]:
        """Every file and folder the dataset is read from, by a name that is the same on every machine."""

    def selection(self, piece: str) -> Sequence[str]:
        """The files of a folder that are read; empty = all of them."""
        return ()

    def severities(self, corruption: str) -> tuple[int, ...]:
        """The severities, of 1 … 5, that the dataset has or should have."""
        return SEVERITIES

    def fingerprint(self) -> str:
        """SHA-256 (hex) over all pieces: the bytes of every file, and the names of the files in folders.

        Every call looks at files again. Folders are looked at once, and again whenever images are read
        from them.
        """
        hashes = {}
        for name, path in self.pieces().items():
            try:
                hashes[name] = self._known_folder_hash(name) if path.is_dir() else file_sha256(path)
            except OSError as problem:
                raise UserError(f"{path} can no longer be read ({problem.strerror}); put it back.") from None
        return combine({f"{self.kind} {self.version}": combine(hashes)})

    def folder_hash(self, name: str) -> str:
        """The hash of a folder that is about to be read. :meth:`fingerprint` uses it from then on."""
        return self._hash_folder(name, quick=False)

    def _known_folder_hash(self, name: str) -> str:
        return self._folder_hashes.get(name) or self._hash_folder(name, quick=True)

    def _hash_folder(self, name: str, *, quick: bool) -> str:
        path, files = self.pieces()[name], self.selection(name)
        self._folder_hashes[name] = files_sha256(path, files) if files else folder_sha256(path, quick=quick)
        return self._folder_hashes[name]

    def check_request(self, corruption: str, severity: int) -> None:
        """Raise UserError for a corruption this dataset does not have, or a severity outside 1 … 5."""
        if corruption not in self.corruptions:
            raise unknown(f"corruption of {self.name}", corruption, self.corruptions)
        if severity not in SEVERITIES:
            raise UserError(f"{self.name} has no severity {severity}; severities are 1 to 5.")
