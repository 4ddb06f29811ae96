"""Settings of the log: what is written there, how, and when it is slow enough to be told."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from holdfast.config.sections import LIVE, Section


class LogSettings(Section, frozen=True, kw_only=True):
    """What `holdfast start` writes to its log, and where; and what takes so long that it is told."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="The least important lines that are written.", extra=LIVE),
    ] = "info"
    format: Annotated[
        Literal["text", "json"],
        Meta(description="Lines for people, or a JSON object in each line for those who collect them."),
    ] = "text"
    file: Annotated[
        str,
        Meta(
            max_length=4096,
            description="File into which the log is written, in a thread; empty: standard output.",
        ),
    ] = ""
    file_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=2**40,
            description="When log.file has so many bytes it is renamed to .1, and that one to .2, and so on.",
        ),
    ] = 67_108_864
    files: Annotated[
        int, Meta(ge=0, le=1000, description="How many of these older files are kept besides log.file.")
    ] = 5
    slow_operation_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400_000,
            description="Operations that waited for so long, for whatever, are told in the log and in the status, "
            "without keys and values; 0: none is.",
        ),
    ] = 100
    slow_disk_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400_000,
            description="A warning tells of a write or sync of this member's files that took so long; 0: none does.",
        ),
    ] = 1000
    stall_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400_000,
            description="A warning tells when this member served nobody for so long in one go; 0: none does.",
        ),
    ] = 500
