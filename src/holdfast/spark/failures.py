"""What went wrong in a Spark job, in Holdfast's words instead of a Java stack trace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import HoldfastError

_OURS = re.compile(r"^\s*(?:holdfast(?:\.\w+)+\.(\w+)): (.*)", re.MULTILINE)
"""The last line of a Python traceback whose error is one of ours."""

_ANY = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\w*): (.+)", re.MULTILINE)

_LOST = (
    ("ExecutorLostFailure", "an executor was lost, and its tasks failed too often"),
    ("OutOfMemoryError", "Spark's JVM ran out of memory: give it more (session(memory=...), --memory)"),
    ("Connection refused", "Spark cannot be reached: has its JVM ended, or the master?"),
)


class JobFailed(HoldfastError):
    """A Spark job failed; the message is that of the task that failed."""


@contextmanager
def in_our_words(what: str) -> Iterator[None]:
    """Raise what happens in this block as a HoldfastError that begins with `what`; errors of ours pass through.

    The original error is its cause, for those who want the whole stack trace.
    """
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        words = explain(error)
        if words is None:
            raise
        raise JobFailed(f"{what}: {words}") from error


def explain(error: BaseException) -> str | None:
    """One or a few sentences on an error of PySpark or Py4J; None when it is of neither."""
    home = type(error).__module__.partition(".")[0]
    if home not in {"pyspark", "py4j"}:
        return None
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[0][1]).strip()
    for sign, words in _LOST:
        if sign in text:
            return words
    found = _ANY.findall(text)
    if found:
        name, words = found[-1]
        return f"{name}: {words}".strip()
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__
