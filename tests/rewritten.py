"""Compile the tests once before several workers collect them.

pytest rewrites the assertions of each test file (27 s of processor time for all) and keeps the result beside the
file. Workers that begin together would all do this at the same time: each finds nothing that another one has written.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import sys
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _rewrite_test,
    _write_pyc,
    assertstate_key,
    get_cache_dir,
    try_makedirs,
)

PROCESSES = 2
HASH = slice(8, 16)
"""Where the hash of the source is in a compiled file."""


def compile_tests(config: pytest.Config, folder: Path) -> int:
    """Write what is missing or out of date for the tests in `folder`; answers how many files that were."""
    if sys.dont_write_bytecode:
        return 0
    stale = [file for file in sorted(folder.rglob("*.py")) if is_test(file) and not is_compiled(file)]
    shares = [stale[number::PROCESSES] for number in range(PROCESSES)]
    context = multiprocessing.get_context("fork")
    running = [context.Process(target=_compile, args=(config, share)) for share in shares if share]
    for process in running:
        process.start()
    for process in running:
        process.join()
    return len(stale)


def is_test(file: Path) -> bool:
    """Whether pytest rewrites the assertions of this file."""
    return file.name.startswith("test_") or file.name == "conftest.py"


def is_compiled(file: Path) -> bool:
    """Whether there is a compiled file, and of this very source."""
    try:
        with compiled(file).open("rb") as found:
            header = found.read(HASH.stop)
    except OSError:
        return False
    return header[HASH] == importlib.util.source_hash(file.read_bytes())


def compiled(file: Path) -> Path:
    """Where pytest keeps its compiled form."""
    return get_cache_dir(file) / (file.name.removesuffix(".py") + PYC_TAIL)


def _compile(config: pytest.Config, files: list[Path]) -> None:
    for file in files:
        source_hash, code = _rewrite_test(file, config)
        if try_makedirs(compiled(file).parent):
            _write_pyc(config.stash[assertstate_key], code, source_hash, compiled(file))
