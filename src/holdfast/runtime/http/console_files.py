"""The files of the console's page, as installed with this package."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from typing import Final

from holdfast.server.http.console_routes import ConsoleFile

FOLDER: Final = "console"
KINDS: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def console_text(name: str) -> str:
    return files("holdfast").joinpath(FOLDER, name).read_text(encoding="utf-8")


def console_files() -> Mapping[str, ConsoleFile]:
    found = {}
    for one in files("holdfast").joinpath(FOLDER).iterdir():
        kind = KINDS.get(one.name.rpartition(".")[2])
        if kind is not None:
            body = one.read_bytes()
            found[one.name] = ConsoleFile(body, kind, f'"{sha256(body).hexdigest()[:32]}"')
    return found
