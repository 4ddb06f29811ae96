"""Django's own tests of cache backends pass, but those that only a pickle passes."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("django", reason="Django is not installed: pip install '.[django]' in the source folder")
pytestmark = pytest.mark.slow
SUITE = Path(__file__).with_name("django_suite.py")
LEFT_OUT = 9
"""Those that need pickle (`django_suite.PICKLED`), and the three that cull."""


def source_of_django(folder: Path) -> Path:
    """`tests` of the source of the version that is installed, from the package index."""
    import django

    wanted = f"django=={django.get_version()}"
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation"]
    told = subprocess.run(
        [*command, "--no-binary", ":all:", "-d", folder, wanted],
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    if told.returncode:
        pytest.skip(f"the source of Django cannot be had: {told.stderr.strip().splitlines()[-1]}")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (tests,) = folder.glob("*/tests")
    return tests


def test_the_backend_passes_what_backends_of_django_pass(addresses: str, tmp_path: Path) -> None:
    tests = source_of_django(tmp_path)
    told = subprocess.run(
        [sys.executable, SUITE, tests, addresses], capture_output=True, text=True, check=False, timeout=250
    )
    assert told.returncode == 0, told.stderr[-5000:]
    found = re.search(r"Ran (\d+) tests", told.stderr)
    assert found
    assert int(found[1]) == 55
    assert f"OK (skipped={LEFT_OUT})" in told.stderr
