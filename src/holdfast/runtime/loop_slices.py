"""Runs long work in slices, so that the event loop serves others in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")
SLICE_S = 0.004


def in_slices(
    loop: asyncio.AbstractEventLoop,
    work: Generator[None, None, T],
    done: Callable[[T], None],
    failed: Callable[[Exception], None],
) -> None:
    """Work for one slice now and continue in later turns; call `done` or `failed` at the end."""
    ends_s = time.perf_counter() + SLICE_S
    try:
        while time.perf_counter() < ends_s:
            next(work)
    except StopIteration as over:
        done(over.value)
    except Exception as error:  # noqa: BLE001  (whatever it is, it ends nothing but this)
        failed(error)
    else:
        loop.call_soon(in_slices, loop, work, done, failed)
