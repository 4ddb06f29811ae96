"""Forecasts for clusters of any size: joins, drains, crashes and restarts, planned on Spark."""
