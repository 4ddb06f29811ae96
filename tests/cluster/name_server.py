"""A name server that says what a test wants: A and SRV records, over UDP on loopback."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self

import dns.flags
import dns.message
import dns.rcode
import dns.rrset


class NameServer:
    """Answers until the block ends."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], list[str]] = {}
        """By name and type what it says; of other names that there are none."""
        self.broken = False
        """Whether it says that it cannot say anything."""
        self.asked: list[tuple[str, str]] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.1)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while not self._ends.is_set():
            try:
                said, where = self._socket.recvfrom(4096)
            except TimeoutError:
                continue
            self._socket.sendto(self._answer(said), where)

    def _answer(self, said: bytes) -> bytes:
        query = dns.message.from_wire(said)
        question = query.question[0]
        name = question.name.to_text(omit_final_dot=True)
        kind = dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind))
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.AA
        found = self.records.get((name, kind), [])
        if self.broken:
            answer.set_rcode(dns.rcode.SERVFAIL)
        elif found:
            answer.answer.append(dns.rrset.from_text(question.name, 0, "IN", kind, *found))
        elif not any(known == name for known, _ in self.records):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        return answer.to_wire()
