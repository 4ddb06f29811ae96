"""The log of a process: text or JSON, to standard output or a rotated file, one line per event.

Foreign text cannot forge lines: characters that could end a line or control a terminal are escaped. JSON is pure ASCII.
In text, lines of a traceback begin with `  | `.
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
"""Additional fields for JSON: `log.info(..., extra={FIELDS: {...}})`."""
OWN = frozenset({"time", "level", "member", "message", "logger", "traceback"})
"""Reserved keys; a field of that name gets an underscore."""
TEXT = "%(asctime)s %(levelname)s %(message)s"


def one_line(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


class TextLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__(TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the name is logging's)
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802  (the name is logging's)
        lines = super().formatException(ei).split("\n")  # type: ignore[arg-type]
        return "\n".join(f"  | {one_line(line)}" for line in lines)


class JsonLines(logging.Formatter):
    def __init__(self, member: str) -> None:
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
        except Exception:  # noqa: BLE001  (logging reports a line that cannot be made)
            self.handleError(record)
            return
        if not self.lines.add(line.encode(errors="backslashreplace") + b"\n"):
            self._left_out += 1

    def close(self) -> None:
        """Write pending lines; `logging` calls this when the process ends."""
        self.lines.close()
        super().close()
        if self._left_out:
            sys.stderr.write(f"{self._left_out} lines of the log were left out: the disk was too slow\n")


def begin_log(settings: LogSettings, member: str = "") -> None:
    """Route all logging of this process as configured. Raises ConfigError when the file cannot be written."""
    handler = FileHandler(settings) if settings.file else logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines(member) if settings.format == "json" else TextLines())
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)


def call_log_of(member: str) -> None:
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonLines) and not handler.formatter.member:
            handler.formatter.member = member
