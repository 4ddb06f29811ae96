"""The part of every client that needs no socket: frames, routing, retries, near caches.

Under the asyncio client, the blocking clients, Spark tasks, operator tools and the simulator's clients.
"""
