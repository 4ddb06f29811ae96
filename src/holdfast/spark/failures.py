"""Errors of Spark jobs as messages of Holdfast instead of Java stack traces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import HoldfastError

_OURS = re.compile(r"^\s*(?:holdfast(?:\.\w+)+\.(\w+)): (.*)", re.MULTILINE)

_ANY = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\w*): (.+)", re.MULTILINE)

_LOST = (
    ("ExecutorLostFailure", "an executor was lost, and its tasks failed too often"),
    ("OutOfMemoryError", "Spark's JVM ran out of memory: give it more (session(memory=...), --memory)"),
    ("Connection refused", "Spark cannot be reached: has its JVM ended, or the master?"),
)


class JobFailed(HoldfastError):
    """A Spark job failed; the message is that of the failed task."""


@contextmanager
def in_our_words(what: str) -> Iterator[None]:
    """Turn errors of Spark in this block into JobFailed with the prefix `what`; Holdfast's errors pass
    unchanged. The original error is the cause.
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
    """An error of PySpark or Py4J in a few sentences; None for other errors."""
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
