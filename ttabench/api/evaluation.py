"""What `ttabench.evaluate` returns."""

from __future__ import annotations

from ttabench.measure import scoring

__all__ = ["Evaluation"]


class Evaluation(scoring.Evaluation):
    """What a method reached on a test set; printed in one line.

    accuracy     in percent.
    correct      (N,) bool, in the order in which the images were given, for those that were scored.
    seconds      to adapt and score.
    alarm        why the number may not be trusted, such as a collapse to few classes; "" if nothing is known.
    calibration  how sure the predictions were: counts, right ones and confidences of bins.
    windows      accuracy in the windows of a long stream; empty for `evaluate`.
    """

    def __repr__(self) -> str:
        """``Evaluation(61.30 %, 613 of 1,000 images right, 0.4 s)``, with the alarm if there is one."""
        counts = f"{int(self.correct.sum()):,} of {len(self.correct):,} images right"
        alarm = f", alarm: {self.alarm}" if self.alarm else ""
        return f"Evaluation({self.accuracy:.2f} %, {counts}, {self.seconds:.1f} s{alarm})"
