"""Makes Spark find the data source `holdfast`.

PySpark imports every installed top-level package named `pyspark_*` once and registers its `DefaultSource`; nothing
has to be registered by hand.
"""

from holdfast.spark.source.holdfast_source import HoldfastSource as DefaultSource

__all__ = ["DefaultSource"]
