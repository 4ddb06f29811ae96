"""The server side of the Hazelcast Open Binary Client Protocol 2.x, for unchanged Hazelcast clients.

hazelcast_session   one connection: bytes in, responses out
keyed_requests      the table of requests that name keys: what they carry, do and answer
frame_parser        bytes -> the parts of such a request
reference_lane      the data lane: these requests, straight from the buffer; compiled_lane is the same in C
zone_entry_sink     its way for maps in zones
conversation        the shared state of a connection's handlers
fragments           reassembly of fragmented requests
names               names of all requests

The other modules have the handlers, each with a table of the requests that it serves. Frames, layouts of requests and
error codes are in `wire.hazelcast`.
"""
