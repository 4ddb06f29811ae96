"""Rejected rows, which cannot be stored, as JSON lines in a folder: one file for each task with any.

A line is `{"reason": ..., "row": {column: value, ...}}`. An attempt of a task writes to a temporary file and
renames it after all its other rows are stored. The final name consists of job and task: if task 3 fails
half-way and runs again, or runs twice at the same time, `<job>-00003.jsonl` exists once, and complete.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyarrow import fs

from holdfast.errors import ConfigError
from holdfast.spark.rows.entry_encoder import Wrong


def open_folder(path: str) -> tuple[fs.FileSystem, str]:
    """The file system and the path of a URI such as `s3://...` or a local path. Raises ConfigError."""
    try:
        if "://" in path:
            return fs.FileSystem.from_uri(path)
        return fs.LocalFileSystem(), path
    except (pa.ArrowException, OSError, ValueError) as failed:
        raise ConfigError(f"{path!r} is no folder that can be written: {failed}") from failed


def prepare_folder(path: str) -> None:
    """Create the folder and check that it is writable. Raises ConfigError."""
    system, folder = open_folder(path)
    probe = f"{folder}/.holdfast-{uuid4().hex}"
    try:
        system.create_dir(folder, recursive=True)
        with system.open_output_stream(probe):
            pass
        system.delete_file(probe)
    except (pa.ArrowException, OSError) as failed:
        raise ConfigError(f"rejected rows cannot be written to {path!r}: {failed}") from failed


def clear_away(path: str, job: str) -> None:
    """Remove temporary files of attempts that were killed."""
    system, folder = open_folder(path)
    with suppress(OSError, pa.ArrowException):
        for found in system.get_file_info(fs.FileSelector(folder)):
            if found.base_name.startswith(f".{job}-"):
                system.delete_file(found.path)


class DeadLetters:
    """Rejected rows of one attempt of a task. The file is created with the first one."""

    def __init__(self, path: str, job: str, task: int) -> None:
        self._path = path
        self._name = f"{job}-{task:05d}"
        self._system: fs.FileSystem | None = None
        self._folder = ""
        self._aside = ""
        self._file: Any = None
        self.rows = 0

    def add(self, batch: pa.RecordBatch, wrong: list[Wrong]) -> None:
        if not wrong:
            return
        if self._system is None:
            self._system, self._folder = open_folder(self._path)
            self._system.create_dir(self._folder, recursive=True)
            self._aside = f"{self._folder}/.{self._name}-{uuid4().hex}"
            self._file = self._system.open_output_stream(self._aside)
        for one in wrong:
            line = {"reason": one.why, "row": _row(batch, one.row)}
            self._file.write(msgspec.json.encode(line, enc_hook=str) + b"\n")
        self.rows += len(wrong)

    def keep(self) -> None:
        """Publish the file: all other rows of the task are stored."""
        if self._system is not None:
            self._file.close()
            self._system.move(self._aside, f"{self._folder}/{self._name}.jsonl")
            self._system = None

    def drop(self) -> None:
        """Remove the file: the attempt failed, and may be repeated."""
        if self._system is not None:
            self._file.close()
            with suppress(OSError):
                self._system.delete_file(self._aside)
            self._system = None


def _row(batch: pa.RecordBatch, row: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            cell = column[row].as_py()
            # Infinite or NaN, or bytes that are not text: as readable text.
            found[name] = str(cell) if isinstance(cell, float) and cell - cell != 0 else cell
            msgspec.json.encode(found[name], enc_hook=str)
        except (ValueError, OverflowError, msgspec.MsgspecError):
            found[name] = (
                repr(column[row].cast(pa.binary()).as_py()) if pa.types.is_string(column.type) else "?"
            )
    return found
