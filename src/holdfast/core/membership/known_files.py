"""Are somebody's files its newest? What members remember of each other's files, so that no old copy comes back.

- membership/F-1: A life of files begins with a token, drawn when they are opened and kept in them until a cluster has
  admitted that life; so a start that was refused, and all that follow it, are the same life. The view says of all files
  that were ever in the cluster which life it has seen last, and how far their journal was durable then. Heartbeats
  carry that further, and members write it down from time to time.
- membership/F-2: Files are the newest when they remember the life that was seen last, and reach as far as it did.
  Others are refused, however often they are opened. Files whose end could not be read are let in, but prove nothing:
  what they hold is only a base, until others have made up for it or the operator accepts the loss.
- membership/F-3: Who forms a stopped cluster again knows only what its own files say. Who asks to be admitted tells
  what is in its own; so one with old files is found out, also when it is the first, before the table is made. Until
  then no life of that cluster counts as admitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.views import FilesSeen, MemberInfo, View

WRITE_DOWN_NS = 2 * SECOND
"""How often, at the most, a member writes down how far the others are."""
WAY_OUT = (
    "Start this member with its newest files; if these are gone, with an empty persistence.directory, and let the "
    "cluster go on without what only they held: holdfast cluster accept-loss"
)


def newest(known: Mapping[str, FilesSeen], more: Mapping[str, FilesSeen]) -> dict[str, FilesSeen]:
    """Of each store what was seen later."""
    merged = dict(known)
    for store, seen in more.items():
        before = merged.get(store)
        if before is None or _later(seen, before):
            merged[store] = seen
    return merged


def _later(one: FilesSeen, other: FilesSeen) -> bool:
    return (one.incarnation, one.reached) > (other.incarnation, other.reached)


def seen_of(info: MemberInfo) -> FilesSeen:
    """How these files are seen when their member is admitted."""
    return FilesSeen(info.incarnation, info.proof.token, info.proof.reached)


def is_behind(info: MemberInfo, seen: FilesSeen | None) -> bool:
    """Whether files that remember their last life do not reach as far as that did."""
    return (
        seen is not None
        and seen.incarnation in {info.incarnation, info.incarnation - 1}
        and (info.proof.reached < seen.reached)
    )


def stale_files_reason(info: MemberInfo, seen: FilesSeen | None) -> str:
    """Why these cannot be the newest files of their store (membership/F-2); empty when they can."""
    proof = info.proof
    if seen is None or seen.incarnation < info.incarnation - 1:
        return ""
    # Files of a time without tokens have none of the life before.
    remembered = {info.incarnation: {proof.token}, info.incarnation - 1: {proof.before or seen.token}}
    if seen.token not in remembered.get(seen.incarnation, ()):
        return (
            f"these files are an old copy: they know of {info.incarnation - 1} lives of theirs, and this cluster has "
            f"seen them in another one, the {seen.incarnation}. {WAY_OUT}"
        )
    if is_behind(info, seen) and not proof.cut:
        return (
            f"these files are an old copy: their journal ends with block {proof.reached}, and this cluster has seen it "
            f"durable up to block {seen.reached}. {WAY_OUT}"
        )
    return ""


class KnownFiles:
    """What one member knows of the files of all."""

    def __init__(self, seen: View | None) -> None:
        """`seen`: the last view that this member's own files know of."""
        self.position = 0
        """How far this member's journal is durable, as it was last told, and tells the others."""
        self._before = dict(seen.stores) if seen is not None else {}
        self._heard: dict[str, FilesSeen] = {}
        """How far members are, say their heartbeats."""
        self._learned: dict[str, FilesSeen] = {}
        """What those who came back have found in their files (membership/F-3)."""
        self._news = False
        self._written_ns = 0

    def heard(self, info: MemberInfo, reached: int) -> None:
        """This member's journal is durable up to this block."""
        seen = FilesSeen(info.incarnation, info.proof.token, reached)
        before = self._heard.get(info.store)
        if info.store and reached and (before is None or _later(seen, before)):
            assert before is None or before.incarnation <= seen.incarnation, (
                "lives of files follow each other"
            )
            self._heard[info.store] = seen
            self._news = True

    def learn(self, stores: Mapping[str, FilesSeen]) -> None:
        """Somebody who comes back has found this in its files."""
        self._learned = newest(self._learned, stores)

    def seen(self, store: str, view: View | None) -> FilesSeen | None:
        """What is known of these files."""
        known: FilesSeen | None = None
        for source in (view.stores if view is not None else self._before, self._learned, self._heard):
            seen = source.get(store)
            if seen is not None and (known is None or _later(seen, known)):
                known = seen
        return known

    def stores(self, view: View | None, members: Iterable[MemberInfo]) -> dict[str, FilesSeen]:
        """What the next view says of all files; `members`: those whose life counts as admitted."""
        known = newest(view.stores if view is not None else self._before, self._learned)
        known = newest(known, self._heard)
        return newest(known, {info.store: seen_of(info) for info in members if info.store})

    def outdated(self, members: Iterable[MemberInfo]) -> set[MemberId]:
        """Who was admitted with old files, as those have told who came later."""
        return {
            info.uuid
            for info in members
            if stale_files_reason(self.by_now(info), self._learned.get(info.store))
        }

    def by_now(self, info: MemberInfo) -> MemberInfo:
        """A member whose journal ends where it has said since it was admitted: it has gone on writing, and who came
        back may have heard how far.
        """
        heard = self._heard.get(info.store)
        proof = info.proof
        if heard is None or (heard.incarnation, heard.token) != (info.incarnation, proof.token):
            return info
        reached = max(proof.reached, heard.reached)
        return msgspec.structs.replace(info, proof=msgspec.structs.replace(proof, reached=reached))

    def to_write_down(self, view: View, now_ns: int) -> View | None:
        """The view with what is known beside it, if that should be written down again."""
        if not self._news or now_ns - self._written_ns < WRITE_DOWN_NS:
            return None
        assert self._written_ns <= now_ns, "this member's time goes on"
        self._news, self._written_ns = False, now_ns
        return msgspec.structs.replace(view, stores=self.stores(view, ()))
