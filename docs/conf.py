"""The documentation site: the pages in Markdown.

    sphinx-build -W --keep-going -n -b html docs site

-W makes every warning an error, e.g. a broken link.
"""

from __future__ import annotations

import ttabench

project = "ttabench"
author = copyright = "The ttabench developers"
version = release = ttabench.__version__

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
nitpicky = True

html_theme = "furo"
html_title = "ttabench"
html_show_sourcelink = False
