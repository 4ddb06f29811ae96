"""Is there a compiled module, and was it made of the source that is here?"""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import Path
from types import ModuleType


def compiled_from(name: str, *sources: Path) -> tuple[ModuleType | None, str]:
    """The compiled module of this name, or why there is none that may be used. `sources`: what it has to be made of, in
    the order in which the build takes them (`build_lane.py`).
    """
    try:
        module = import_module(name)
    except ModuleNotFoundError:
        return None, "it was not compiled when this Holdfast was installed"
    except (ImportError, ValueError) as error:
        # It knows how objects of this Holdfast are laid out, and these are laid out in another way.
        return None, f"what was compiled does not fit ({error}): make install"
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    if digest != module.SOURCE:
        return None, "what was compiled is of another source: make install"
    return module, ""
