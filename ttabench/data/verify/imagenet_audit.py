"""The audit of imagenet-c, whose download need not be whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ttabench.data.published.imagenet_subset import ImageNetSubset, open_imagenet_c
from ttabench.data.verify.findings import Finding, error, warning
from ttabench.data.verify.image_folder_audit import FolderAudit
from ttabench.errors import UserError, counted

__all__ = ["ImageNetAudit"]


class ImageNetAudit(FolderAudit):
    """What a sweep measures under this name: all images, or ``here-N`` where the download is not whole."""

    partial: ClassVar[bool] = True

    def run(self) -> Iterator[Finding]:
        try:
            data = open_imagenet_c(self.facts, self.root)
        except UserError as problem:
            yield error(str(problem))
            return
        if not isinstance(data, ImageNetSubset):
            yield from super().run()
            return
        yield warning(
            f"{self.folder} is incomplete; a sweep measures the {counted(len(data.names), 'image')} of each "
            f"corruption that are in it, as {data.name}."
        )
        for done, (name, folder) in enumerate(data.pieces().items()):
            self.on_progress(name, done, len(data.pieces()))
            if name == "clean/train":
                continue
            try:
                files = data.files_in(folder)[0]
            except UserError as problem:  # an image that others have is missing
                yield error(str(problem))
                continue
            yield from self._readable(files, data.fit_of(files) if name == "clean/val" else "exact")
        yield from self._training(data)
