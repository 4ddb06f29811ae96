"""The members of the cluster and its master: heartbeats, failure detection, agreement on views."""
