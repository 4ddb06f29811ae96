"""The section `log`: contents and format of the log, and thresholds of slow operations."""

from __future__ import annotations

from typing import Literal

from holdfast.config.sections import Section, about, sized, whole


class LogSettings(Section, frozen=True, kw_only=True):
    """The log of `holdfast start`, and thresholds of slow operations."""

    level: Literal["debug", "info", "warning", "error"] = about(
        "info", "Lowest level that is logged.", live=True
    )
    format: Literal["text", "json"] = about("text", "Plain text, or one JSON object per line.")
    file: str = sized("", 4096, "Log file, written by a thread; empty: standard output.")
    file_bytes: int = whole(
        67_108_864, 65_536, 2**40, "Size at which log.file is rotated to .1, .1 to .2, and so on."
    )
    files: int = whole(5, 0, 1000, "Number of rotated files to keep besides log.file.")
    slow_operation_ms: int = whole(
        100,
        0,
        86_400_000,
        "Duration from which operations are reported in log and status, without keys and values; 0: none.",
    )
    slow_disk_ms: int = whole(
        1000, 0, 86_400_000, "Duration of a disk write or sync from which the log has a warning; 0: never."
    )
    stall_ms: int = whole(
        500, 0, 86_400_000, "Duration of an event-loop stall from which the log has a warning; 0: never."
    )
