"""Loads compiled modules, if they were built from the present sources."""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import Path
from types import ModuleType


def compiled_from(name: str, *sources: Path) -> tuple[ModuleType | None, str]:
    """The compiled module, or why it cannot be used. `sources`: in the order of the build (`build_lane.py`)."""
    try:
        module = import_module(name)
    except ModuleNotFoundError:
        return None, "it was not compiled when this Holdfast was installed"
    except (ImportError, ValueError) as error:
        # It was built for another memory layout of our objects.
        return None, f"what was compiled does not fit ({error}): make install"
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    if digest != module.SOURCE:
        return None, "what was compiled is of another source: make install"
    return module, ""
