"""CP objects: what a step on a lock, a semaphore, a latch, an atomic value or a session answers and changes. Pure.

The objects and sessions of a group are entries of one map (cp/C-1), so both engines replicate them as they replicate
maps. A step that has to wait changes nothing; the leader keeps it (`routing.collection_waits`).
"""
