"""Free ports for members."""

from __future__ import annotations

from holdfast_lab.processes.local_cluster import free_ports


def test_later_calls_return_other_ports() -> None:
    """The members of the first call may not listen yet."""
    found = [port for _ in range(200) for port in free_ports(3)]
    assert len(set(found)) == 600
