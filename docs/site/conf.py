"""How Sphinx makes the site; ``make docs`` runs it."""

from __future__ import annotations

import builtins
import re
from typing import Any

from sphinx import addnodes

from shoal import __version__

project = "Shoal"
author = "the authors of Shoal"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = [".doctrees"]

# Results of benchmarks are sections of a program's output, which begin with the third level.
suppress_warnings = ["myst.header"]

# Headings of pages are anchors, by the names that code hosts give them.
myst_heading_anchors = 4

# In docstrings `Dataset` is a link where there is such a name, and plain code elsewhere.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
add_module_names = False
python_maximum_signature_line_length = 100
toc_object_entries = False

html_theme = "furo"
html_title = "Shoal"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
# Furo asks other hosts for nothing; so do we not.
html_theme_options = {"footer_icons": []}
pygments_style = "friendly"

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_PAGE = re.compile(r"\]\(([\w./-]+)\.md\)")


def _navigate(app: Any, page: str, source: list[str]) -> None:
    """Make the navigation of the lists of links on the first page, which people read as they are on a code host."""
    if page == root_doc:
        _, *parts = _SECTION.split(source[0])
        for title, text in zip(parts[::2], parts[1::2], strict=True):
            more = ["reference/index"] if title == "Reference" else []
            source[0] += _tree(title, [*_PAGE.findall(text), *more])
    elif page == "docs/commands":
        source[0] += _tree("", [each for each in _PAGE.findall(source[0]) if each.startswith("commands/")])


def _tree(caption: str, entries: list[str]) -> str:
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, "", *dict.fromkeys(entries), "```", ""])


def _leave_builtins(app: Any, doctree: Any) -> None:
    """Take links off names of the language: ``bytes`` in a signature is not an attribute ``bytes`` of ours."""
    for link in list(doctree.findall(addnodes.pending_xref)):
        if link.get("refdomain") == "py" and hasattr(builtins, link.get("reftarget", "")):
            link.replace_self(link.children)


def setup(app: Any) -> None:
    """Connect to Sphinx."""
    app.connect("source-read", _navigate)
    app.connect("doctree-read", _leave_builtins)
