"""Plain text as LaTeX prints it."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "#": r"\#", "$": r"\$", "%": r"\%", "&": r"\&",
    "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}", "[": "{[}", "]": "{]}",
    "*": "{*}",  # after a line break, a star is part of the command
    "†": r"\textdagger{}", "‡": r"\textdaggerdbl{}", "§": r"\S{}", "–": "--", "—": "---", "−": "$-$",
    "…": r"\dots{}", "°": r"$^\circ$", "’": "'", "‘": "`", "“": "``", "”": "''", "‖": r"$\|$", "⁄": "/",
    "\u00a0": "~",
}  # fmt: skip
_FORMULAS = {  # signs that LaTeX has a command for in formulas, without any package
    "αβγδεζηθικλμνξπ": "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi",
    "ρςστυφχψω": "rho varsigma sigma tau upsilon phi chi psi omega",
    "ΓΔΘΛΞΠΣΥΦΨΩ": "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega",
    "√±∓×÷·∗∘⊕⊗⊙": "surd pm mp times div cdot ast circ oplus otimes odot",
    "≤≥≠≈∼≡∝≪≫∈∉⊂∪∩∅": "le ge ne approx sim equiv propto ll gg in notin subset cup cap emptyset",
    "→←↔↦⇒↑↓": "to gets leftrightarrow mapsto Rightarrow uparrow downarrow",
    "∞∂∇∑∏∫": "infty partial nabla sum prod int",
    "∧∨¬∀∃⟨⟩⌊⌋⌈⌉ℓ": "wedge vee neg forall exists langle rangle lfloor rfloor lceil rceil ell",
}
SPECIAL |= {
    sign: f"$\\{command}$"
    for signs, commands in _FORMULAS.items()
    for sign, command in zip(signs, commands.split(), strict=True)
}
SPECIAL |= dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True))  # Greek that looks Latin


_QUOTE = re.compile(r'(?P<opens>(?:(?<=[\s(\[{])|^)"(?=\S))|"')

_BETWEEN_HYPHENS = re.compile("(?<=[-–—])(?=[-–—])")


@lru_cache(maxsize=50_000)
def escape(text: str) -> str:
    """`text` so that LaTeX prints it: specials escaped, Greek and signs as formulas, accents left out.

    What pdfLaTeX has no letter for is printed by its number, such as ``U+4E2D``.

    >>> escape("tent[norms=all]: 5 % of a_b")
    'tent{[}norms=all{]}: 5 \\\\% of a\\\\_b'
    """
    runs = _BETWEEN_HYPHENS.split(_QUOTE.sub(_directed, text))  # LaTeX prints "--" as a dash
    return "{}".join("".join(SPECIAL.get(char) or _plain(char) for char in run) for run in runs)


def _directed(quote: re.Match[str]) -> str:
    """A straight quotation mark as an opening or closing one: it opens before a word."""
    return "“" if quote["opens"] else "”"


def _plain(char: str) -> str:
    if char.isascii():
        return char if char.isprintable() else " "
    if "À" <= char <= "ÿ" and char not in "ÐðÞþ":  # what every font encoding can build
        return char
    if unicodedata.combining(char) or unicodedata.category(char) == "Cf":
        return ""
    parts = unicodedata.normalize("NFKD", char)
    text = escape(parts) if parts != char else ""
    if not text or "U+" in text:
        return f"U+{ord(char):04X}"
    raised = {"<super>": "\\textsuperscript", "<sub>": "\\textsubscript"}
    command = raised.get(unicodedata.decomposition(char).split()[0])
    return f"{command}{{{text}}}" if command else text
