"""What is compiled reads attributes of Python's objects in their place, and is not used where these are elsewhere."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from holdfast.runtime.compiled import compiled_from
from holdfast.runtime.data_lane import data_lane

ROOT = Path(__file__).parent.parent
SOURCE = "from holdfast.core.model.update_counter import UpdateCounter\n"
needs_compiler = pytest.mark.skipif(data_lane().kind == "python", reason=data_lane().why or "compiled")


@pytest.fixture(scope="module")
def build_lane() -> object:
    spec = importlib.util.spec_from_file_location("build_lane", ROOT / "build_lane.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_compiler
@pytest.mark.parametrize("right", [True, False])
def test_objects_that_are_laid_out_in_another_way_are_not_touched(
    build_lane: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, right: bool
) -> None:
    name = f"counters_{'right' if right else 'wrong'}"
    source = tmp_path / f"{name}.py"
    source.write_text(SOURCE)
    module = build_lane.Module(  # type: ignore[attr-defined]
        "a trial",
        name,
        source,
        (source,),
        ((SOURCE, "from cython.cimports.slotted import UpdateCounter\n"),),
        slotted=("UpdateCounter",),
    )
    monkeypatch.setattr(build_lane, "MODULES", (module,))
    if not right:
        layout = build_lane.layouts()  # type: ignore[attr-defined]
        swapped = layout.replace("*hwm; PyObject *lwm;", "*lwm; PyObject *hwm;")
        assert swapped != layout
        monkeypatch.setattr(build_lane, "layouts", lambda: swapped)
    made, why = build_lane.build(tmp_path / "into")  # type: ignore[attr-defined]
    assert (len(made), why) == (1, "")
    monkeypatch.syspath_prepend(str(made[0].parent))
    found, problem = compiled_from(name, source)
    sys.modules.pop(name, None)
    assert (found is not None) is right
    assert ("make install" in problem) is not right


def test_whoever_has_no_slots_is_not_built_upon(build_lane: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(build_lane.SLOTTED, "Lane", ROOT / "src/holdfast/core/primary_backup/lane.py")  # type: ignore[attr-defined]
    with pytest.raises(SystemExit, match="no class Lane with slots"):
        build_lane.slots_of("Lane")  # type: ignore[attr-defined]
