"""One Spark session for all tests that need one: starting it costs more than all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.server.memory_cluster import MemoryCluster

from holdfast.errors import ConfigError
from holdfast.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SETTINGS = {
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    # Frames of tests have few rows: to compile Java for each query costs more than to interpret the query.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def java() -> None:
    """Skip what needs Java where there is none."""
    pytest.importorskip("pyspark")
    try:
        java_home()
    except ConfigError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    """Two slots, and three attempts for each task."""
    from holdfast.spark.spark_session import session

    made = session("local[2,3]", "holdfast tests", SETTINGS)
    yield made
    made.stop()


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    """Three members without processes."""
    with MemoryCluster(3, 31) as running:
        yield running
