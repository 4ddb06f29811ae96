"""The example for FastAPI, against real members."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="FastAPI is not installed")
pytest.importorskip("httpx2", reason="httpx2 is not installed, which FastAPI's test client needs")
from fastapi.testclient import TestClient

EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi_app.py"


def test_the_example_serves_what_is_in_the_grid(addresses: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST", addresses)
    spec = importlib.util.spec_from_file_location("fastapi_app", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fastapi_app", example)
    spec.loader.exec_module(example)
    flight = {"origin": "EWR", "minutes": 227}
    with TestClient(example.app) as browser:
        assert browser.get("/flights/UA1545").status_code == 404
        assert browser.put("/flights/UA1545", json=flight).status_code == 204
        assert browser.get("/flights/UA1545").json() == flight
        assert browser.put("/flights/UA1714?ttl_s=0.05", json=flight).status_code == 204
        while browser.get("/flights/UA1714").status_code != 404:
            pass
        assert browser.delete("/flights/UA1545").status_code == 204
        assert browser.get("/flights/UA1545").status_code == 404
        assert sorted(browser.get("/health").json()["members"]) == sorted(addresses.split(","))
