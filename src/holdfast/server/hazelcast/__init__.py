"""The server side of the Hazelcast Open Binary Client Protocol 2.x, for unchanged Hazelcast clients.

hazelcast_session   one connection: bytes in, responses out
entries_cy          the data lane: reads and writes of single entries, straight from the buffer
zone_entries        the same for maps in zones
conversation        the shared state of a connection's handlers
fragments           reassembly of fragmented requests
names               names of all requests

The other modules have the handlers, each with a table of the requests that it serves. Frames, layouts of requests and
error codes are in `wire.hazelcast`.
"""
