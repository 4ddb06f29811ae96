"""Engine 2: the partition of a zone as a Raft group; its state machine and the routing to its leader."""
