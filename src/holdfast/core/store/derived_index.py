"""Indexes beside the entries of a map, built from them when they are first needed, and never replicated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from holdfast.core.store.map_state import MapState
from holdfast.core.store.state import Observer


class DerivedIndex(Observer, Protocol):
    """An index that follows the changes of the entries."""

    def __init__(self, entries: Mapping[bytes, bytes]) -> None: ...


Index = TypeVar("Index", bound=DerivedIndex)


def index_of(state: MapState, kind: type[Index]) -> Index:
    """The index of this class beside the entries, with all changes so far; built from them if there is none."""
    state.fold()
    for observer in state.observers:
        if isinstance(observer, kind):
            return observer
    built = kind(state.entries)
    state.observe(built)
    return built
