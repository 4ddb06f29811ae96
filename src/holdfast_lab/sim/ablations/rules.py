"""Names of the rules that keep data safe (DESIGN §4), so that tests can disable one and observe the loss.

Production code does not know these names. The simulator runs without some rules (`switching`) and must then
find the harm; otherwise the rule, or the simulator, is useless.
"""

from __future__ import annotations

_GRID: dict[str, str] = {
    "all-ack": "A write is acknowledged only when every sync backup holds it.",
    "confirmed-answers": "An answer that changed nothing waits for the replicas that a write would wait for.",
    "destination-acks": "The destination of a running migration takes part in every acknowledgement of its partition.",
    "durable-ack": "A write of a map with a synchronous journal is acknowledged when it is durable on every holder.",
    "fill-durable": "A copy that was filled counts as complete when its journalled maps are durable.",
    "wait-for-stores": "A cluster that was stopped waits for everybody who was in it last and may hold writes.",
    "owner-by-proof": "Of copies from disks only those count that the newest row names, and that are proven whole.",
    "failed-sync-stops": "A write or sync of the journal that fails is never tried again: the member stops.",
    "damage-ends": "What the journal holds behind a loss of blocks is not joined to what a copy held before it.",
    "fence": "A replica accepts records only from the primary it knows, at the same partition version.",
    "cut-kept": "A cut is answered only when all sync backups keep it.",
    "monotonic-reads": "A member reads a backup only if it is not older than what the member was answered before.",
    "apply-once": "A request that was applied and comes again is answered with what it was answered.",
    "told-when-safe": "A change is delivered only when every sync backup holds it.",
    "record-order": "A backup applies records in the order of the update counter, each once.",
    "activate": "A new primary serves only after its replicas know it at the new version and hold what it holds.",
    "promotion-by-table": "A backup becomes owner only by a table from the master.",
    "wait-for-copies": "A partition whose in-sync copies are all unreachable waits; it is never silently emptied.",
    "lost-refused": "What is lost to a map that does not ignore it is neither read nor written before it is reset.",
    "lost-stays": "A partition that was declared lost stays lost until the operator resets it.",
    "baseline-history": "Two parts of a cluster that have gone on without each other do not come together.",
    "baseline-outside": "Who is not in the baseline holds nothing.",
    "level-by-all": "The feature level rises only when every member can do it.",
    "level-admits": "Who cannot do the feature level in force is not let in.",
    "level-in-force": "What is sent and written down is of the feature level in force.",
    "copy-complete": "A destination counts as filled only when it holds the last chunk.",
    "no-gap": "A copy that is being filled is complete only when no update up to the last chunk is missing.",
    "newer-wins": "An update that comes late does not undo a newer one of the same key.",
    "term": "Equal update counters of different terms are different histories.",
    "destination-first": "The master commits a migration only after its destination has stored the new row.",
    "forget-last": "A source forgets only after the master has committed.",
    "newest-table": "A new master learns the newest rows of every member before it publishes anything.",
    "table-majority": "A change of the table takes effect only when a majority of the view has stored it.",
    "view-majority": "A view is followed by another one only by consent of a majority of its members.",
    "failed-version": "A failed migration raises the version further than its success would have.",
    "drain-waits": "A leaving member goes only when its partitions are safe elsewhere.",
    "plan-keeps-copies": "At no step of a plan are there fewer copies than before or as wanted, whichever is less.",
    "repeat": "What may have been lost between two members is sent again until it is acknowledged.",
    "once": "A packet that arrives twice is handed on once.",
    "in-order": "A packet that overtook others is handed on only after them.",
    "lives": "A packet counts only between the two members, and the lives of both, that it was sent between.",
}
_AGREED: dict[str, str] = {
    "vote-durable": "A replica that starts again knows in which term it was, and for whom it voted there.",
    "append-durable": "A follower acknowledges entries when they are durable.",
    "vote-for-complete": "A replica votes only for a log that is not behind its own.",
    "matching-append": "A replica takes entries only after one that its log and the leader's have in common.",
    "joint-majorities": "While the voters change most of the old ones and most of the new ones must agree.",
    "catch-up": "A change of the voters is logged when the new ones have nearly the whole log.",
    "change-token": "A change of the voters by an older token than what the group knows is refused.",
    "change-agreed": "New voters are joined when the metastore has agreed to just this target.",
    "read-index": "A read is answered when most voters have confirmed, after it came, who leads.",
    "read-standing": "What a voter has said of a leader counts for later reads only while it follows whom it followed.",
    "heads-confirmed": "The head of a change stream in a zone is that of a leader whom a majority has confirmed.",
    "forward-term": "A request that was sent to a leader is taken by it in that term only.",
    "reset-fences": "Who has not heard of a group's reset is not listened to.",
    "metastore-reads": "Decisions are based on the metastore's leader, not on local state.",
    "keys-guarded": "What is written into the metastore counts only if nothing it goes by has changed.",
    "clean-up": "A replica is destroyed only when no assignments name it and its group does not move.",
    "zone-waits": "A member leaves only when no assignments of a zone name it.",
    "zone-successors": "A member at the place of a data node that has gone for good replaces it at once.",
}
_MOVES: dict[str, str] = {
    "map-paused": "While all that is left of a map is sent to its new place, nothing changes at the old one.",
    "waiters-follow": "Requests that wait while a map moves are carried out at its new place.",
    "fills-in-order": "The new place takes what one leader of the old one sends, each part once and in order.",
    "source-observed": "The last part is read from a copy that was observed since the first.",
}
_TRANSACTIONS: dict[str, str] = {
    "lock-exclusive": "An entry that a transaction has locked is locked, read and written by no other transaction.",
    "lock-respected": "What is done outside of transactions waits for those that have locked the entry.",
    "locks-checked": "A transaction that has lost a lock with its primary is not prepared.",
    "reads-checked": "It commits only if it still holds the locks of entries that it has only read.",
    "prepared-locked": "A new primary locks what prepared transactions have written or compared.",
    "topology-compared": "A first lock that was mapped before its partition got another primary is mapped again.",
    "seen-compared": "What an optimistic transaction has read must be the same when it is prepared.",
    "all-prepared": "A transaction commits only when every branch is prepared.",
    "asked-is-fenced": "A branch that was asked for and is not prepared never will be.",
    "branches-decide": "Of a transaction without a coordinator the branches say what became of it.",
    "all-asked": "A transaction that is recovered commits only when all branches are prepared, or one has committed.",
    "outcome-kept": "A branch keeps the outcome until every branch has it.",
    "orphans-end": "What a transaction holds whose owner has gone is released.",
}
_TRANSACTIONS_IN_ZONES: dict[str, str] = {
    "zone-lock-respected": "In a zone, other changes of a locked entry wait for its transaction.",
    "zone-lock-ordered": "A lock in a zone is answered with the value after all changes that came before it.",
    "zone-lock-term": "A lock in a zone ends with the term of the leader that knows it.",
    "zone-prepared-kept": "No leader of a zone changes an entry of a prepared transaction.",
}
RULES: dict[str, str] = _GRID | _AGREED | _MOVES | _TRANSACTIONS | _TRANSACTIONS_IN_ZONES
TRANSACTIONAL = frozenset(_TRANSACTIONS)
ZONED = frozenset(_AGREED | _MOVES | _TRANSACTIONS_IN_ZONES)

DURABLE = frozenset({"durable-ack", "wait-for-stores", "owner-by-proof", "append-durable", "vote-durable"})
"""Rules that matter only if all hosts lose power."""

DIRECTED = frozenset(
    {
        "no-gap",
        "newer-wins",
        "term",
        "monotonic-reads",
        "fill-durable",
        "failed-sync-stops",
        "damage-ends",
        "wait-for-stores",
        "told-when-safe",
        # Maps of a campaign ignore losses.
        "lost-refused",
        "lost-stays",
        # No cluster of a campaign has a baseline.
        "baseline-history",
        "baseline-outside",
        # Few runs of a campaign have several builds.
        "level-by-all",
        "level-admits",
        "level-in-force",
        # Zones: too few ablated runs were tried to say how soon one would notice.
        *ZONED,
    }
)
"""Rules whose harm needs more luck than a campaign has, or more memory than its clients: directed tests show
it.
"""
