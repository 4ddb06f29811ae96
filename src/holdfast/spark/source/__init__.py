"""The PySpark data source `holdfast`: batch and streaming, reader and writer."""
