"""Compiles the modules of the hot path, where Cython and a C compiler are found: the data lane
(`holdfast.server.hazelcast.compiled_lane`), its table of entries (`holdfast.core.store.entry_table`), the
way of what is stored to the backups (`holdfast.core.primary_backup.packed_puts_cy`), the clients' sockets
(`holdfast.runtime.doors.poll_cy`), and the thread of the journal (`holdfast.runtime.disk.write_thread`).

    python build_lane.py       into src, for a checkout; `make install` does it

Wheels get them by the hook at the end. Where something is missing this says so and nothing fails: plain Python does the
same, slower. Imports of what stands for C are replaced by C's own names; all else is the same text.
"""

from __future__ import annotations

import ast
import hashlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # for a checkout it is not needed
    BuildHookInterface = object  # type: ignore[assignment,misc]

ROOT = Path(__file__).parent
SRC = ROOT / "src"
DIRECTIVES = {"language_level": 3, "boundscheck": False, "wraparound": False, "binding": True}


LANE = SRC / "holdfast" / "server" / "hazelcast" / "compiled_lane.pyx"
CONDITIONS = SRC / "holdfast" / "core" / "operations" / "conditions.py"
IN_COMMON = (LANE.with_name("frame_parser.py"), LANE.with_name("lane_tally.py"), CONDITIONS)
"""Texts that the plain lane imports and the compiled one includes, from this line on:"""
COMPILED_FROM = "# -- compiled as well\n"
TABLE = SRC / "holdfast" / "core" / "store" / "entry_table.pyx"
PUTS = SRC / "holdfast" / "core" / "primary_backup" / "packed_puts_cy.py"
POLL = SRC / "holdfast" / "runtime" / "doors" / "poll_cy.py"
WRITES = SRC / "holdfast" / "runtime" / "disk" / "write_thread.pyx"
SYSTEM_CALLS = SRC / "holdfast" / "runtime" / "doors" / "system_calls.pxd"
LANE_AND_TABLE = (LANE, *IN_COMMON, TABLE, TABLE.with_suffix(".pxd"), TABLE.with_name("murmur3.pxd"))
"""These know each other's layout, so each is of use only beside the other as it was."""


CORE = SRC / "holdfast" / "core"
SLOTTED = {
    "Assignment": CORE / "model" / "partition_table.py",
    "AckBatch": CORE / "primary_backup" / "ack_batch.py",
    "MapState": CORE / "store" / "map_state.py",
    "PartitionCopy": CORE / "store" / "partition_copy.py",
    "Puts": CORE / "model" / "records.py",
    "Replica": CORE / "store" / "replica.py",
    "Section": CORE / "messages.py",
    "Tail": CORE / "store" / "tail.py",
    "UnsentPuts": CORE / "store" / "replica.py",
    "UpdateCounter": CORE / "model" / "update_counter.py",
}
"""Classes of Python whose attributes C reads in their place: with `__slots__` they are pointers behind the object's
head, in the order of their names. Each compiled module tries that with one object of each class when it is imported."""


class Module(NamedTuple):
    """One module that is compiled."""

    what: str
    name: str
    """Of the compiled module."""
    source: Path
    made_of: tuple[Path, ...]
    """Its digest is of these, in this order (`runtime.compiled`)."""
    replaced: tuple[tuple[str, str], ...] = ()
    """Lines of the source that import what stands for C, and what is imported instead."""
    names_of_c: tuple[Path, ...] = ()
    """Declarations of what is C."""
    included: tuple[Path, ...] = ()
    """Texts that it includes, without what stands there for C."""
    slotted: tuple[str, ...] = ()
    """Of `SLOTTED`, what it names."""
    only_on: str = ""
    """The system that has what it calls; empty: all have."""

    def text(self) -> str:
        """What Cython is given. It carries the digest of what it was made from, so that an old build is not used."""
        text = self.source.read_text(encoding="utf-8")
        for plain, of_c in self.replaced:
            if text.count(plain) != 1:
                raise SystemExit(f"{self.source} does not import what stands for C as {plain!r}")
            text = text.replace(plain, of_c)
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in self.made_of)).hexdigest()
        tried = "".join(trial_of(name) for name in self.slotted)
        return text + tried + f'\n\nSOURCE = "{digest}"\n'


def slots_of(name: str) -> list[str]:
    """The attributes of one of `SLOTTED`, in the order in which they are in memory."""
    for node in ast.parse(SLOTTED[name].read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for line in node.body:
                if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "__slots__":
                    return sorted(ast.literal_eval(line.value))
            if any(ast.unparse(base) == "msgspec.Struct" for base in node.bases):
                return sorted(
                    ast.unparse(line.target) for line in node.body if isinstance(line, ast.AnnAssign)
                )
    raise SystemExit(f"{SLOTTED[name]} has no class {name} with slots")


def layouts() -> str:
    """Declarations of `SLOTTED` for C."""
    lines = ["cdef extern from *:", '    """']
    for name in SLOTTED:
        fields = " ".join(f"PyObject *{slot};" for slot in slots_of(name))
        lines.append(f"    typedef struct {{ PyObject_HEAD {fields} }} Slotted{name};")
    lines.append('    """')
    for name, source in SLOTTED.items():
        module = ".".join(source.relative_to(SRC).with_suffix("").parts)
        lines.append(f"    ctypedef class {module}.{name} [object Slotted{name}, check_size error]:")
        lines += [f"        cdef object {slot}" for slot in slots_of(name)]
    return "\n".join(lines) + "\n"


def trial_of(name: str) -> str:
    """What a module does when it is imported: raise ImportError if this class is not laid out like that."""
    slots = slots_of(name)
    known = " and ".join(f"one.{slot} is marks['{slot}']" for slot in slots)
    return f"""

def _try_{name}():
    one: {name}
    marks = {{slot: object() for slot in {slots}}}
    if hasattr({name}, "__struct_fields__"):
        one = {name}(**marks)
    else:
        one = {name}.__new__({name})
        for slot, mark in marks.items():
            setattr(one, slot, mark)
    if not ({known}):
        raise ImportError("{name} is laid out in another way")


_try_{name}()
"""


SLOTTED_IN_PUTS = """from holdfast.core.messages import Section
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Changes, Puts
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.primary_backup.ack_batch import AckBatch
from holdfast.core.primary_backup.backlog import RECORD_BYTES
from holdfast.core.store import uncompiled as cython
from holdfast.core.store.map_state import FOLD_AT, MapState
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica, UnsentPuts
from holdfast.core.store.tail import Tail
"""
SLOTTED_FOR_PUTS = (
    "import cython; from holdfast.core.model.ids import MemberId; from holdfast.core.model.records import Changes; "
    "from holdfast.core.primary_backup.backlog import RECORD_BYTES; from holdfast.core.store.map_state import FOLD_AT; "
    "from cython.cimports.slotted import Assignment, AckBatch, MapState, PartitionCopy, Puts, Replica, Section; "
    "from cython.cimports.slotted import Replica as MapReplica, Tail, UnsentPuts, UpdateCounter\n"
)
MODULES = (
    Module("the table of entries", "holdfast.core.store.entry_table", TABLE, LANE_AND_TABLE),
    Module(
        "the data lane",
        "holdfast.server.hazelcast.compiled_lane",
        LANE,
        LANE_AND_TABLE,
        included=IN_COMMON,
        slotted=("MapState", "PartitionCopy", "Replica", "UnsentPuts", "UpdateCounter"),
    ),
    Module(
        "the way of stores to backups",
        "holdfast.core.primary_backup.packed_puts_compiled",
        PUTS,
        (PUTS,),
        ((SLOTTED_IN_PUTS, SLOTTED_FOR_PUTS),),
        slotted=tuple(SLOTTED),
    ),
    Module(
        "the clients' sockets",
        "holdfast.runtime.doors.poll_compiled",
        POLL,
        (POLL, SYSTEM_CALLS),
        (
            ("from holdfast.core.store import uncompiled as cython\n", "import cython\n"),
            ("from holdfast.runtime.doors.system_calls import", "from cython.cimports.system_calls import"),
        ),
        (SYSTEM_CALLS,),
        only_on="linux",
    ),
    Module("the journal's thread", "holdfast.runtime.disk.write_thread", WRITES, (WRITES,), only_on="linux"),
)


def wanted() -> list[Module]:
    """What can be compiled on this system."""
    return [module for module in MODULES if sys.platform.startswith(module.only_on)]


def build(into: Path) -> tuple[list[Path], str]:
    """Compile into this folder, which stands for `src`; answers the files, or the reason why there are none."""
    try:
        from Cython.Build import cythonize
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext
    except ImportError as missing:
        return [], f"{missing.name} is not installed"
    with tempfile.TemporaryDirectory() as folder:
        extensions = []
        Path(folder, "slotted.pxd").write_text(layouts(), encoding="utf-8")
        for module in wanted():
            copy = Path(folder) / (module.name.rpartition(".")[2] + module.source.suffix)
            copy.write_text(module.text(), encoding="utf-8")
            for path in module.names_of_c:
                shutil.copy(path, folder)
            for path in module.included:
                common = path.read_text(encoding="utf-8").partition(COMPILED_FROM)[2]
                Path(folder, path.with_suffix(".pxi").name).write_text(common, encoding="utf-8")
            extensions.append(Extension(module.name, [str(copy)], extra_compile_args=["-O2", "-g0"]))
        try:
            made = cythonize(
                extensions,
                build_dir=folder,
                include_path=[folder, str(SRC)],
                compiler_directives=DIRECTIVES,
                quiet=True,
            )
            command = build_ext(Distribution({"name": "holdfast-lane", "ext_modules": made}))
            command.build_lib, command.build_temp = str(into), folder
            command.ensure_finalized()
            command.run()
        except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever it is: plain Python does without)
            return [], f"it could not be compiled ({error}): a C compiler and Python's headers are needed"
        return [into / command.get_ext_filename(module.name) for module in wanted()], ""


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
            self.app.display_warning(f"the wheel has the hot path in plain Python only: {why}")
            return
        for path in made:
            build_data["force_include"][str(path)] = path.relative_to(self._folder.name).as_posix()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called when the wheel is there."""
        if version != "editable":
            self._folder.cleanup()


if __name__ == "__main__":
    found, reason = build(SRC)
    for each, path in zip(wanted(), found, strict=False):
        sys.stdout.write(f"compiled: {each.what}, {path.relative_to(ROOT)}\n")
    if not found:
        sys.stdout.write(f"the data lane and the clients' sockets stay plain Python: {reason}\n")
