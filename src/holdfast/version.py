"""Which Holdfast is this?"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("holdfast-grid")
except PackageNotFoundError:
    __version__ = "from a bare source tree"
