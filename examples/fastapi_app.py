"""A web service on FastAPI that keeps its data in the grid: one client for each process, opened and closed by its
lifespan.

pip install . fastapi uvicorn    (in Holdfast's source folder)
HOLDFAST=127.0.0.1:5701 uvicorn --app-dir examples fastapi_app:app --workers 4
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

from holdfast.aio import Client, Map
from holdfast.errors import Refused, Unknown


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Each worker process connects when it begins to serve, after it was forked, and hangs up at its end."""
    members = os.environ.get("HOLDFAST", "127.0.0.1:5701").split(",")
    async with Client(members, patience_s=5) as client:
        app.state.grid = client
        yield


app = FastAPI(title="Flights", lifespan=lifespan)


def flights(request: Request) -> Map:
    """The map that these pages are about."""
    found: Map = request.app.state.grid.map("flights")
    return found


Flights = Annotated[Map, Depends(flights)]


@app.exception_handler(Refused)
async def refused(_: Request, error: Refused) -> JSONResponse:
    """Certainly not done: whoever asked may ask again."""
    return JSONResponse({"detail": str(error)}, status_code=503, headers={"Retry-After": "1"})


@app.exception_handler(Unknown)
async def unknown(_: Request, error: Unknown) -> JSONResponse:
    """Perhaps done: whoever asked has to look before he asks again."""
    return JSONResponse({"detail": str(error)}, status_code=504)


@app.get("/flights/{number}")
async def read(number: str, entries: Flights) -> Any:
    """One flight."""
    found = await entries.get(number)
    if found is None:
        raise HTTPException(404, f"there is no flight {number}")
    return found


@app.put("/flights/{number}", status_code=204)
async def write(number: str, flight: dict[str, Any], entries: Flights, ttl_s: float | None = None) -> None:
    """Store a flight, for so many seconds if that is said."""
    await entries.set(number, flight, ttl_s=ttl_s)


@app.delete("/flights/{number}", status_code=204)
async def remove(number: str, entries: Flights) -> None:
    """Forget a flight."""
    await entries.delete(number)


@app.get("/health")
async def health(request: Request) -> dict[str, list[str]]:
    """Which members this process is connected to; 503 without any."""
    connected = request.app.state.grid.connected
    if not connected:
        raise HTTPException(503, "no member is connected")
    return {"members": connected}
