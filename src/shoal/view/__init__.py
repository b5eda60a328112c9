"""Data, pipelines, trainings and stores, to be looked at: in the browser, in a notebook, on a terminal.

>>> import shoal.view
>>> shoal.view.serve.__name__
'serve'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.view._notebook import Picture, show
    from shoal.view._server import View, serve

__all__ = ["Picture", "View", "serve", "show"]

__getattr__, __dir__ = attach(__name__, {"_notebook": ("Picture", "show"), "_server": ("View", "serve")})
