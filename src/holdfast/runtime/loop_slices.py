"""Work that takes long, done in slices: the member goes on in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")
SLICE_S = 0.004
"""How long is worked in one turn of the loop, at about: until the generator yields after that."""


def in_slices(
    loop: asyncio.AbstractEventLoop,
    work: Generator[None, None, T],
    done: Callable[[T], None],
    failed: Callable[[Exception], None],
) -> None:
    """Work as far as it goes in some ms now, and on in the next turns; tell one of the two at the end."""
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
