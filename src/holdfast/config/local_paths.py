"""Check of local paths, which rejects URIs."""

from __future__ import annotations

import re
from typing import TypeVar

from holdfast.errors import ConfigError

Path = TypeVar("Path")

_SCHEMES = "s3|s3a|s3n|gs|gcs|az|adl|abfs|abfss|wasb|wasbs|oss|cos|swift|dbfs|hdfs|webhdfs|viewfs|file|ftp|sftp|https?"
_URI = re.compile(rf"(?:[a-z][a-z0-9+.-]+:/|(?:{_SCHEMES}):)", re.IGNORECASE)
"""One slash is enough, because `pathlib` turns `s3://bucket` into `s3:/bucket`. `C:/x` and `monday:noon` are paths.
"""


def uri_reason(path: object) -> str:
    """Why this is not a local path; empty if it is one."""
    text = str(path)
    if not _URI.match(text):
        return ""
    if text.lower().startswith("file:"):
        return f"{text!r} is a URI: give the path itself, {re.sub('^/+', '/', text[5:])!r}"
    return (
        f"{text!r} is a URI, and only local paths work here. Give a local folder, or one that is mounted (NFS, s3fs), "
        "and copy what is in it with the tool of your object store"
    )


def local_path(path: Path) -> Path:
    """The path as given, a text or a `pathlib.Path`. Raises ConfigError for any URI."""
    reason = uri_reason(path)
    if reason:
        raise ConfigError(reason)
    return path
