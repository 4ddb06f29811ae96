"""An asyncio client of the Hazelcast protocol, for Holdfast clusters; it needs no server code.

async with Client(["127.0.0.1:5701"]) as client:
    await client.map("flights").put("UA1545", "EWR")
"""

from holdfast.aio.asyncio_client import Client
from holdfast.aio.asyncio_map import Map

__all__ = ["Client", "Map"]
