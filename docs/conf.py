"""Sphinx: pages of the documents, and the API reference from docstrings. `make docs` builds both into build/docs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

project = "tvm-ext"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# The source folder is the root of the repository, so that links lead where they lead in a checkout.
root_doc = "README"
include_patterns = [
    "*.md",
    "docs/**",
    "benchmarks/*.md",
    "benchmarks/results/**",
    "tests/fuzz/*.md",
    "tuning_logs/*.md",
]
html_title = project
html_theme_options = {"page_width": "1100px"}
html_copy_source = False
myst_heading_anchors = 3
#: Results of a machine are pages that others link to; attributes of several classes have one name.
suppress_warnings = ["toc.not_included", "ref.python"]
default_role = "code"  # a single backtick in a docstring
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say it in words; signatures have the annotations
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False  # Returns: is a sentence


def _add_contents(_app: Any, page: str, source: list[str]) -> None:
    """The pages that README links to, in that order, are the table of contents."""
    if page == root_doc:
        pages = dict.fromkeys(re.findall(r"\]\(([\w/]+)\.(?:md|rst)\)", source[0]))
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", "", *pages, "```"])


def _read_docstring(_app: Any, what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """What is indented behind an empty line is code or a drawing: a literal block. A constant's text is no type."""
    out: list[str] = []
    if lines and what in ("data", "attribute"):
        lines[0] = lines[0].replace(": ", " - ", 1)
    for line in lines:
        if line.startswith("    ") and len(out) > 1 and not out[-1] and not out[-2].startswith(" "):
            out += ["::", ""]
        out.append(line)
    lines[:] = out


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _add_contents)
    app.connect("autodoc-process-docstring", _read_docstring, priority=100)  # before napoleon
