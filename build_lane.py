"""Compiles the data lane (`holdfast.server.hazelcast.entries_cy`) and the table that it stores entries in
(`holdfast.core.store.entry_table`), where Cython and a C compiler are found.

    python build_lane.py       into src, for a checkout; `make install` does it

Wheels get it by the hook at the end. Where something is missing this says so and nothing fails: plain Python does the
same, slower. The one import of `uncompiled` is replaced by Cython's own names; all else is the same text.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # for a checkout it is not needed
    BuildHookInterface = object  # type: ignore[assignment,misc]

ROOT = Path(__file__).parent
MODULE = "holdfast.server.hazelcast.entries_compiled"
SOURCE = ROOT / "src" / "holdfast" / "server" / "hazelcast" / "entries_cy.py"
TABLE_MODULE = "holdfast.core.store.entry_table"
TABLE = ROOT / "src" / "holdfast" / "core" / "store" / "entry_table.pyx"
PLAIN = """from holdfast.server.hazelcast.uncompiled import (
    EntryTable,
    bytes_of,
    cython,
    memcmp,
    memcpy,
    resize,
)
"""
OF_C = (
    "import cython; from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING as bytes_of; "
    "from cython.cimports.cpython.bytearray import PyByteArray_Resize as resize; "
    "from cython.cimports.holdfast.core.store.entry_table import EntryTable; "
    "from cython.cimports.libc.string import memcmp, memcpy\n"
)
DIRECTIVES = {"language_level": 3, "boundscheck": False, "wraparound": False, "binding": True}


def digest() -> str:
    """Of all that is compiled (as `runtime.data_lane` counts it), so that an old build is not used: the two modules
    know each other's layout.
    """
    return hashlib.sha256(
        b"".join(path.read_bytes() for path in (SOURCE, TABLE, TABLE.with_suffix(".pxd")))
    ).hexdigest()


def text() -> str:
    """What Cython is given of the lane."""
    plain = SOURCE.read_text(encoding="utf-8")
    if plain.count(PLAIN) != 1:
        raise SystemExit(f"{SOURCE} does not import what stands for Cython as {PLAIN!r}")
    return plain.replace(PLAIN, OF_C) + f'\n\nSOURCE = "{digest()}"\n'


def build(into: Path) -> tuple[list[Path], str]:
    """Compile into this folder, which stands for `src`; answers the files, or none and the reason why."""
    try:
        from Cython.Build import cythonize
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext
    except ImportError as missing:
        return [], f"{missing.name} is not installed"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "entries_compiled.py"
        copy.write_text(text(), encoding="utf-8")
        table = Path(folder) / "entry_table.pyx"
        table.write_text(TABLE.read_text(encoding="utf-8") + f'\n\nSOURCE = "{digest()}"\n', encoding="utf-8")
        try:
            modules = cythonize(
                [
                    Extension(name, [str(source)], extra_compile_args=["-O2", "-g0"])
                    for name, source in ((TABLE_MODULE, table), (MODULE, copy))
                ],
                include_path=[str(ROOT / "src")],
                build_dir=folder,
                compiler_directives=DIRECTIVES,
                quiet=True,
            )
            command = build_ext(Distribution({"name": "holdfast-lane", "ext_modules": modules}))
            command.build_lib, command.build_temp = str(into), folder
            command.ensure_finalized()
            command.run()
        except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever it is: plain Python does without)
            return [], f"it could not be compiled ({error}): a C compiler and Python's headers are needed"
        return [into / command.get_ext_filename(name) for name in (TABLE_MODULE, MODULE)], ""


class LaneHook(BuildHookInterface):  # type: ignore[misc,valid-type]
    """Puts the compiled lane into wheels."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is built."""
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        made, why = build(Path(self._folder.name))
        if not made:
            self.app.display_warning(f"the wheel has the data lane in plain Python only: {why}")
            return
        for file in made:
            build_data["force_include"][str(file)] = file.relative_to(self._folder.name).as_posix()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called when the wheel is there."""
        if version != "editable":
            self._folder.cleanup()


if __name__ == "__main__":
    found, reason = build(ROOT / "src")
    if not found:
        sys.stdout.write(f"the data lane stays plain Python: {reason}\n")
    else:
        sys.stdout.write(
            f"the data lane is compiled: {', '.join(str(file.relative_to(ROOT)) for file in found)}\n"
        )
