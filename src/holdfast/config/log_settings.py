"""The section `log`: contents and format of the log, and thresholds of slow operations."""

from __future__ import annotations

from typing import Annotated, Literal

from holdfast.config.sections import Section, about, sized, whole


class LogSettings(Section, frozen=True, kw_only=True):
    """The log of `holdfast start`, and thresholds of slow operations."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        about("Lowest level that is logged.", live=True),
    ] = "info"
    format: Annotated[Literal["text", "json"], about("Plain text, or one JSON object per line.")] = "text"
    file: Annotated[str, sized("Log file, written by a thread; empty: standard output.", 4096)] = ""
    file_bytes: Annotated[
        int,
        whole("Size at which log.file is rotated to .1, .1 to .2, and so on.", 65_536, 2**40),
    ] = 67_108_864
    files: Annotated[int, whole("Number of rotated files to keep besides log.file.", 0, 1000)] = 5
    slow_operation_ms: Annotated[
        int,
        whole(
            "Duration from which operations are reported in log and status, without keys and values; 0: none.",
            0,
            86_400_000,
        ),
    ] = 100
    slow_disk_ms: Annotated[
        int,
        whole("Duration of a disk write or sync from which the log has a warning; 0: never.", 0, 86_400_000),
    ] = 1000
    stall_ms: Annotated[
        int,
        whole("Duration of an event-loop stall from which the log has a warning; 0: never.", 0, 86_400_000),
    ] = 500
