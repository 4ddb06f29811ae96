"""What our code asks of the Spark task that it runs in."""

from __future__ import annotations

import gc

from pyspark import TaskContext

from holdfast.errors import ConfigError
from holdfast.version import __version__


def task_number() -> int:
    """The number of this task in its stage; 0 outside of Spark."""
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


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
    if TaskContext.get() is not None:
        gc.freeze()
