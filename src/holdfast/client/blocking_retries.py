"""Retries of a thread, which sleeps between two tries."""

from __future__ import annotations

import math
import time

from holdfast.client_core.retries import Retries


class BlockingRetries(Retries):
    def __init__(self, patience_s: float) -> None:
        super().__init__(patience_s, time.monotonic)

    def sleep(self, longest_s: float = math.inf) -> bool:
        """Sleep before the next try, at most `longest_s`; false, at once, when the patience is over."""
        pause_s = self.pause_s()
        if pause_s is None:
            return False
        time.sleep(min(pause_s, longest_s))
        return True
