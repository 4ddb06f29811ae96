"""Plans what joins, drains, crashes and changed settings would do: for a cluster, a file or numbers. Needs no Spark."""
