"""The section `log`: contents and format of the log, and thresholds of slow operations."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from holdfast.config.sections import LIVE, Section


class LogSettings(Section, frozen=True, kw_only=True):
    """The log of `holdfast start`, and thresholds of slow operations."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Lowest level that is logged.", extra=LIVE),
    ] = "info"
    format: Annotated[
        Literal["text", "json"],
        Meta(description="Plain text, or one JSON object per line."),
    ] = "text"
    file: Annotated[
        str,
        Meta(
            max_length=4096,
            description="Log file, written by a thread; empty: standard output.",
        ),
    ] = ""
    file_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=2**40,
            description="Size at which log.file is rotated to .1, .1 to .2, and so on.",
        ),
    ] = 67_108_864
    files: Annotated[
        int, Meta(ge=0, le=1000, description="Number of rotated files to keep besides log.file.")
    ] = 5
    slow_operation_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400_000,
            description="Duration from which operations are reported in log and status, without keys and values; "
            "0: none.",
        ),
    ] = 100
    slow_disk_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400_000,
            description="Duration of a disk write or sync from which the log has a warning; 0: never.",
        ),
    ] = 1000
    stall_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400_000,
            description="Duration of an event-loop stall from which the log has a warning; 0: never.",
        ),
    ] = 500
