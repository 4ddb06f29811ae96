"""The pipeline's functions take no URI for a local folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.errors import ConfigError

pytest.importorskip("pyspark")

from holdfast.spark.files.checkpoint_files import checkpoint_frame
from holdfast.spark.files.journals import journal_frame
from holdfast.spark.pipeline.changes import into_parquet
from holdfast.spark.pipeline.export import export
from holdfast.spark.pipeline.extract import extract
from holdfast.spark.pipeline.restoring import restore
from holdfast.spark.pipeline.verified_export import verify_export
from holdfast.spark.pipeline.verify import verify

NO_SPARK: Any = None
URI: Any = "s3://bucket/x"


@pytest.mark.parametrize(
    "work",
    [
        lambda: export(NO_SPARK, "127.0.0.1:1", URI),
        lambda: restore(NO_SPARK, URI, "127.0.0.1:1"),
        lambda: verify_export(NO_SPARK, URI),
        lambda: extract(NO_SPARK, "m", URI, address="127.0.0.1:1"),
        lambda: verify(NO_SPARK, files=[URI, "m2"]),
        lambda: journal_frame(NO_SPARK, [URI]),
        lambda: checkpoint_frame(NO_SPARK, [URI]),
        lambda: into_parquet(NO_SPARK, URI),
    ],
)
def test_a_function_refuses_a_uri_before_anything_else(work: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match="'s3://bucket/x' is a URI, and only local paths work here"):
        work()
