"""cifar10-c-bar: CIFAR-10's test images under the ten corruptions of `ttabench.corruptions.bar`."""

from __future__ import annotations

from ttabench.corruptions.corruption_names import BAR_CORRUPTIONS, VERSION
from ttabench.corruptions.engine import corrupt
from ttabench.data.dataset import Labelled
from ttabench.data.files.fingerprint import combine
from ttabench.data.files.generated_cache import cached_array
from ttabench.data.published.clean_cifar import CleanCifar
from ttabench.system.environment import cache_dir

SEED = 0


class CifarBar(CleanCifar):
    """The published generator does not fix its random numbers, so every user has to generate the images.

    They are made here on first use, with the 32-pixel constants of the generator and seed 0, and kept in the
    cache. The fingerprint contains the clean batches, the seed and the version of the corruptions.
    """

    corruptions = BAR_CORRUPTIONS

    def fingerprint(self) -> str:
        return combine({"clean": super().fingerprint(), "generated": f"bar {VERSION} seed {SEED}"})

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        self.check_request(corruption, severity)
        folder = cache_dir() / "data" / self.name / self.fingerprint()[:16]
        images = cached_array(
            folder / f"{corruption}-{severity}.npy",
            lambda: corrupt(self.test().images, corruption, severity, seed=SEED),
        )
        return Labelled(images, self.test().labels)
