"""What runs on Spark. Whatever is imported from here first looks which PySpark there is."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

OLDEST, TOO_NEW = (4, 1), (5,)
"""The versions of PySpark that will do: from the first on, before the second. pyproject.toml says the same."""

_VERSION = re.compile(r"""^__version__\b[^=]*=\s*["'](\d+)\.(\d+)([^"']*)["']""", re.MULTILINE)


def check_pyspark() -> None:
    """Raises ImportError when the PySpark that is installed is of another version than this pipeline is written for.

    Its file is read, not imported: a version that does not fit fails in the middle of an import, and tells nothing. It
    need not have come from a package index, either: a Spark cluster brings its own. None at all is no error here.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return
    try:
        found = _VERSION.search(Path(spec.origin).with_name("version.py").read_text(encoding="utf-8"))
    except OSError:
        return
    if found is None or OLDEST <= (int(found[1]), int(found[2])) < TOO_NEW:
        return
    raise ImportError(
        f"PySpark {found[1]}.{found[2]}{found[3]} is installed, and Holdfast needs 4.1 or newer, below 5: "
        "pip install '.[spark]' in the source folder"
    )


check_pyspark()
