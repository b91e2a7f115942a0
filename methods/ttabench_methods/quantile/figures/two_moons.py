"""Two moons (appendix): from a start near a symmetry the marginals match and the classes swap."""

from __future__ import annotations

from matplotlib.figure import Figure

from ttabench.figure import at_least
from ttabench_methods.quantile.toys import two_moons

from .toy_over_epochs import Course, draw, follow

SHOWN = (0.0, 0.05, 0.5, 1.0)


def figure(*, epochs: int = 120, lr: float = 1.0, start: float = 30.0, seed: int = 0) -> Figure:
    """Two classes that swap if matching starts near a symmetry (start: degrees; 180 is correct)."""
    course = compute(epochs, lr, start, seed)
    return draw(course, beside=-course.source)  # turned by 180°, which is what is corrected


def compute(epochs: int = 120, lr: float = 1.0, start: float = 30.0, seed: int = 0) -> Course:
    at_least(1, epochs=epochs)
    at_least(0, lr=lr, start=start)
    return follow(two_moons(seed, start), epochs, lr, 0.9, SHOWN)
