"""The documentation site: the pages in Markdown, and the Python API from the code itself.

    sphinx-build -W --keep-going -n -b html docs site

-W makes every warning an error: a broken link, a name that does not exist, an example that cannot be parsed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import ttabench

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "ttabench"
author = copyright = "The ttabench developers"
version = release = ttabench.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "docstring_columns"]
exclude_patterns = ["_extensions"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
nitpicky = True
# Types of other packages, which have sites of their own, and type variables.
nitpick_ignore_regex = [
    (
        "py:class",
        r"(torch|np|numpy|pd|pandas|nn|collections|pathlib|typing)\..*|NDArray|Tensor|Module|Path|Any|inf",
    ),
    ("py:class", r"(.*\.)?[A-Z]"),  # type variables
    ("py:func|py:mod", r"ttabench\.(?!method|nn).*"),  # what is not part of the public interface
]

html_theme = "furo"
html_title = "ttabench"
html_show_sourcelink = False
