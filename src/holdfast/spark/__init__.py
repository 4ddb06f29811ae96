"""Jobs on Spark. Importing this package checks the version of PySpark first."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

OLDEST, TOO_NEW = (4, 1), (5,)
"""At least the first, below the second. pyproject.toml has the same bounds."""

_VERSION = re.compile(r"""^__version__\b[^=]*=\s*["'](\d+)\.(\d+)([^"']*)["']""", re.MULTILINE)


def check_pyspark() -> None:
    """Raises ImportError if the installed PySpark has an unsupported version; no PySpark at all is fine.

    The version is read from PySpark's file, because importing an unsupported one fails without a useful
    message. PySpark may also belong to a Spark cluster, where no package manager checks its version.
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
