"""The example that a data engineer reads first must run, and must be able to fail."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "feature_store.py"


@pytest.mark.slow
@pytest.mark.spark
def test_the_feature_store_loses_nothing(java: None) -> None:
    command = [sys.executable, str(EXAMPLE), "--customers", "2000", "--seconds", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2000 customers exported" in done.stdout
    assert ", 0 differ" in done.stdout


@pytest.fixture
def example() -> ModuleType:
    pytest.importorskip("pyspark")
    spec = importlib.util.spec_from_file_location("feature_store", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_features_of_last_night_are_the_same_every_time(example: ModuleType, tmp_path: Path) -> None:
    one, other = tmp_path / "one.parquet", tmp_path / "other.parquet"
    example.write_features(one, 50)
    example.write_features(other, 50)
    table = pq.read_table(one)
    assert table.equals(pq.read_table(other))
    assert table.num_rows == 50
    assert table.schema.field("visits").type == pa.int64()
    assert len(set(table["customer"].to_pylist())) == 50
