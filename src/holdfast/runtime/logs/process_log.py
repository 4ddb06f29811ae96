"""The log of a process: text or JSON, on standard output or in a file that is rotated; one event is one line.

Whatever is said in a line, its end is ours: characters that some reader takes for the end of a line, or a terminal for
an order, are written as escapes. JSON is ASCII alone. In text a traceback has further lines, each begins with `  | `.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path

from holdfast.config import LogSettings
from holdfast.errors import ConfigError
from holdfast.runtime.logs.line_file import LineFile

FIELDS = "fields"
"""What a record has besides its line, for JSON: `log.info(..., extra={FIELDS: {...}})`."""
OWN = frozenset({"time", "level", "member", "message", "logger", "traceback"})
"""Keys that are ours, whatever fields are called."""
TEXT = "%(asctime)s %(levelname)s %(message)s"


def one_line(text: str) -> str:
    """The text without a character that could end a line or order a terminal about."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


class TextLines(logging.Formatter):
    """Lines for people."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the name is logging's)
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802  (the name is logging's)
        lines = super().formatException(ei).split("\n")  # type: ignore[arg-type]
        return "\n".join(f"  | {one_line(line)}" for line in lines)


class JsonLines(logging.Formatter):
    """A JSON object for each line, for those who collect them."""

    def __init__(self, member: str) -> None:
        """`member`: what this one is called; empty: it is not said."""
        super().__init__()
        self.member = member

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        said: dict[str, object] = {"time": when, "level": record.levelname}
        if self.member:
            said["member"] = self.member
        if record.name != "holdfast":
            said["logger"] = record.name
        said["message"] = record.getMessage()
        fields = getattr(record, FIELDS, None) or {}
        said |= {f"{name}_" if name in OWN else name: value for name, value in fields.items()}
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, separators=(",", ":"), default=str)


class FileHandler(logging.Handler):
    """Gives the lines to a file that is written in a thread."""

    def __init__(self, settings: LogSettings) -> None:
        """Raises ConfigError when the file cannot be written."""
        super().__init__()
        self._left_out = 0
        path = Path(settings.file)

        def lost(error: OSError) -> None:
            sys.stderr.write(f"the log cannot be written, lines of it are lost: {path}: {error}\n")

        try:
            self.lines = LineFile(
                path, size_max=settings.file_bytes, kept=settings.files, name="holdfast-log", lost=lost
            )
        except OSError as error:
            raise ConfigError(f"log.file: cannot write {path}: {error.strerror}") from None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001  (a line that cannot be made is told as logging tells it)
            self.handleError(record)
            return
        if not self.lines.add(line.encode(errors="backslashreplace") + b"\n"):
            self._left_out += 1

    def close(self) -> None:
        """Write what has gathered; `logging` calls it when the process ends."""
        self.lines.close()
        super().close()
        if self._left_out:
            sys.stderr.write(f"{self._left_out} lines of the log were left out: the disk was too slow\n")


def begin_log(settings: LogSettings, member: str = "") -> None:
    """Let everything that is logged in this process go where the settings say, and nowhere else.

    `member`: what this one is called. Raises ConfigError when the file cannot be written.
    """
    handler = FileHandler(settings) if settings.file else logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines(member) if settings.format == "json" else TextLines())
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)


def call_log_of(member: str) -> None:
    """What this member is called in the lines of JSON from now on, if it was not known before."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonLines) and not handler.formatter.member:
            handler.formatter.member = member
