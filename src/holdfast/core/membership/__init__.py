"""Which members are in the cluster, and who is the master? Heartbeats, failure detection, agreement on views."""
