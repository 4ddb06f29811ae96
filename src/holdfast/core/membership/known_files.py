"""Knowledge of each member's files, so that an old copy of a data directory is not taken for the newest.

Example: member B stops, and its directory is restored from yesterday's backup. Its files are readable, but lack today's
acknowledged writes: B might become primary and serve yesterday's data.

- membership/F-1: Each start opens a new life of the files, with a random token that they keep. Rejected starts belong
  to the same life as the next ones, until a cluster admits it. The view records the last life of all files that were
  ever in the cluster, and how far their journal was durable. Heartbeats raise that position, and members store it from
  time to time.
- membership/F-2: Files are the newest if they remember the last known life and reach its position. Others are rejected.
  Files with an unreadable end are admitted, but as a base only: they count once other replicas have completed them, or
  the operator accepts the loss.
- membership/F-3: The process that forms a stopped cluster again knows only its own files. Each joining process reports
  what its files know, so old files, even those of the first process, are found before the table is made. Until then no
  life of that cluster counts as admitted.
- membership/F-6: Files of a member that was gone before the stop are not awaited, whichever process forms the cluster
  again. Example: A leaves. B crashes, its disk is lost, and C and D continue without it. All stop. A starts first, and
  awaits B, C and D. Then C reports a later view, without B.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.views import FilesGone, FilesSeen, MemberInfo, View

WRITE_DOWN_NS = 2 * SECOND
"""Minimum interval at which positions of others are stored."""
WAY_OUT = (
    "Start this member with its newest files; if these are gone, with an empty persistence.directory, and accept "
    "the loss of data that only they held: holdfast cluster accept-loss"
)


def newest(known: Mapping[str, FilesSeen], more: Mapping[str, FilesSeen]) -> dict[str, FilesSeen]:
    merged = dict(known)
    for store, seen in more.items():
        before = merged.get(store)
        if before is None or _later(seen, before):
            merged[store] = seen
    return merged


def _later(one: FilesSeen, other: FilesSeen) -> bool:
    return (one.incarnation, one.reached) > (other.incarnation, other.reached)


def seen_of(info: MemberInfo) -> FilesSeen:
    return FilesSeen(info.incarnation, info.proof.token, info.proof.reached)


def files_gone(view: View | None) -> FilesGone | None:
    """None: the view does not know them. That of a recovering cluster may lack members that are still to be named."""
    if view is None or view.recovering:
        return None
    here = {info.store for info in (*view.missing, *view.members)}
    return FilesGone(
        view.number, {store: seen.incarnation for store, seen in view.stores.items() if store not in here}
    )


def is_gone(info: MemberInfo, known: FilesGone) -> bool:
    """membership/F-6: a view that is later than the admission of this member does not have it any more."""
    return info.life <= known.number and known.stores.get(info.store, -1) >= info.incarnation


def is_behind(info: MemberInfo, seen: FilesSeen | None) -> bool:
    """Whether files remember the last life, and do not reach its position."""
    return (
        seen is not None
        and seen.incarnation in {info.incarnation, info.incarnation - 1}
        and (info.proof.reached < seen.reached)
    )


def stale_files_reason(info: MemberInfo, seen: FilesSeen | None) -> str:
    """membership/F-2; empty: they may be the newest."""
    proof = info.proof
    if seen is None or seen.incarnation < info.incarnation - 1:
        return ""
    # Files from before there were tokens have none of their former life.
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
    def __init__(self, seen: View | None) -> None:
        self.position = 0
        """Last block of this member's journal that is durable."""
        self._before = dict(seen.stores) if seen is not None else {}
        self._heard: dict[str, FilesSeen] = {}
        self._learned: dict[str, FilesSeen] = {}
        """From the files of returning members (membership/F-3)."""
        self._news = False
        self._written_ns = 0

    def heard(self, info: MemberInfo, reached: int) -> None:
        seen = FilesSeen(info.incarnation, info.proof.token, reached)
        before = self._heard.get(info.store)
        if info.store and reached and (before is None or _later(seen, before)):
            assert before is None or before.incarnation <= seen.incarnation, (
                "lives of files follow each other"
            )
            self._heard[info.store] = seen
            self._news = True

    def learn(self, stores: Mapping[str, FilesSeen]) -> None:
        self._learned = newest(self._learned, stores)

    def seen(self, store: str, view: View | None) -> FilesSeen | None:
        known: FilesSeen | None = None
        for source in (view.stores if view is not None else self._before, self._learned, self._heard):
            seen = source.get(store)
            if seen is not None and (known is None or _later(seen, known)):
                known = seen
        return known

    def stores(self, view: View | None, members: Iterable[MemberInfo]) -> dict[str, FilesSeen]:
        known = newest(view.stores if view is not None else self._before, self._learned)
        known = newest(known, self._heard)
        return newest(known, {info.store: seen_of(info) for info in members if info.store})

    def outdated(self, members: Iterable[MemberInfo]) -> set[MemberId]:
        """Members with old files, as later ones have shown."""
        return {
            info.uuid
            for info in members
            if stale_files_reason(self.by_now(info), self._learned.get(info.store))
        }

    def by_now(self, info: MemberInfo) -> MemberInfo:
        """The member with its position raised to that of its heartbeats: returning members may know how far it has
        written since its admission.
        """
        heard = self._heard.get(info.store)
        proof = info.proof
        if heard is None or (heard.incarnation, heard.token) != (info.incarnation, proof.token):
            return info
        reached = max(proof.reached, heard.reached)
        return msgspec.structs.replace(info, proof=msgspec.structs.replace(proof, reached=reached))

    def to_write_down(self, view: View, now_ns: int) -> View | None:
        """The view with the newest positions, if it is time to store them."""
        if not self._news or now_ns - self._written_ns < WRITE_DOWN_NS:
            return None
        assert self._written_ns <= now_ns, "this member's time goes on"
        self._news, self._written_ns = False, now_ns
        return msgspec.structs.replace(view, stores=self.stores(view, ()))
