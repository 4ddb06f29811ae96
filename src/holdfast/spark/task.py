"""The Spark task that runs this code."""

from __future__ import annotations

import gc
import sys
from typing import Any

from holdfast.errors import ConfigError
from holdfast.version import __version__


def _context() -> Any:
    spark = sys.modules.get("pyspark")
    return spark.TaskContext.get() if spark is not None else None


def task_number() -> int:
    """The number of the task in its stage; 0 outside Spark."""
    context = _context()
    return int(context.partitionId()) if context is not None else 0


def check_release(driver: str) -> None:
    """Raises ConfigError if this executor has another version of Holdfast than the driver."""
    if __version__ != driver:
        raise ConfigError(
            f"the executor has Holdfast {__version__}, the driver has {driver}: install the same version on both"
        )


def leave_garbage() -> None:
    """Exclude all present objects from garbage collection; no effect outside a task.

    Spark's worker collects after each task. With the libraries of a task loaded that takes 15 to 50 ms each
    time, more than a task over a small map.
    """
    if _context() is not None:
        gc.freeze()
