"""The server side of the Hazelcast Open Binary Client Protocol 2.x: what unchanged Hazelcast clients talk to.

session         one connection: bytes in, answers out
entries_cy      the data lane: single-entry reads and writes, straight from the buffer
frames          the frame layer: finding, reading and building messages
layouts         the parameters of a request, declared by name, and their decoder
conversation    what the handlers of one connection share
authentication, views, objects, maps, listeners, schemas
the handlers, each with the table of messages it answers
refusals        error codes and how an outcome becomes one
names           what every message of the protocol is called
"""
