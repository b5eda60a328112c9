"""Other Python environments than the user's, and processes of theirs that serve calls.

A *recipe* says what is in an environment, with exact versions. An *environment* is one that is there: built from a
recipe, or any virtual environment or interpreter by its path. A *guest* is a process of one; data and results cross as
Arrow and plain arrays, and versions need not match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.environments._abroad import Abroad
    from shoal.environments._build import build
    from shoal.environments._check import check
    from shoal.environments._environment import Environment, find
    from shoal.environments._folders import Built, built, remove
    from shoal.environments._guest import Guest
    from shoal.environments._inside.codec import Decoder, Encoder, Malformed, Unsendable
    from shoal.environments._kept import Kept
    from shoal.environments._recipe import Install, Recipe, recipe, recipe_names
    from shoal.environments._stand_ins import StandIn, stand_in

__all__ = [
    "Abroad",
    "Built",
    "Decoder",
    "Encoder",
    "Environment",
    "Guest",
    "Install",
    "Kept",
    "Malformed",
    "Recipe",
    "StandIn",
    "Unsendable",
    "build",
    "built",
    "check",
    "find",
    "recipe",
    "recipe_names",
    "remove",
    "stand_in",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "_abroad": ("Abroad",),
        "_build": ("build",),
        "_check": ("check",),
        "_environment": ("Environment", "find"),
        "_folders": ("Built", "built", "remove"),
        "_guest": ("Guest",),
        "_inside.codec": ("Decoder", "Encoder", "Malformed", "Unsendable"),
        "_kept": ("Kept",),
        "_recipe": ("Install", "Recipe", "recipe", "recipe_names"),
        "_stand_ins": ("StandIn", "stand_in"),
    },
)
