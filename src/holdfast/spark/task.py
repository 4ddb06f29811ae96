"""What our code asks of the Spark task that it runs in."""

from __future__ import annotations

import gc
import sys
from typing import Any

from holdfast.errors import ConfigError
from holdfast.version import __version__


def _context() -> Any:
    """The task of Spark that this is; None outside, where PySpark may not even be installed."""
    spark = sys.modules.get("pyspark")
    return spark.TaskContext.get() if spark is not None else None


def task_number() -> int:
    """The number of this task in its stage; 0 outside of Spark."""
    context = _context()
    return int(context.partitionId()) if context is not None else 0


def check_release(driver: str) -> None:
    """Whether this executor has the driver's version of Holdfast. Raises ConfigError, which names both."""
    if __version__ != driver:
        raise ConfigError(
            f"the executor has Holdfast {__version__}, the driver has {driver}: install the same version on both"
        )


def leave_garbage() -> None:
    """Tell Python's collector that what lives now will stay; nothing outside of a task.

    Spark's worker collects after each task; with the libraries of a task loaded that takes 15 to 50 ms every time,
    which is more than a task over a small map.
    """
    if _context() is not None:
        gc.freeze()
