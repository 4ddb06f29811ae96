"""Registers the data source `holdfast` with Spark.

PySpark imports every installed top-level package named `pyspark_*` once and registers its `DefaultSource`.
"""

from holdfast.spark.source.holdfast_source import HoldfastSource as DefaultSource

__all__ = ["DefaultSource"]
