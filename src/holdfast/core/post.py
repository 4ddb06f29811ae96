"""Who is a message for? Each kind of message between members, and the machine of the member that handles it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core import messages as m
from holdfast.core.model.ids import MemberId

if TYPE_CHECKING:
    from holdfast.core.member import Member


def deliver(member: Member, sender: MemberId, message: m.Message) -> None:
    """Give a message that came over a link to the machine that it is for."""
    match message:
        case m.Replicate():
            member.copies.on_replicate(sender, message)
        case m.Replicated():
            if message.unkept:
                member.copies.cuts.not_kept(sender, message.unkept)
            member.lane.on_replicated(sender, message)
        case m.Forward():
            member.router.on_forward(sender, message)
        case m.Answer():
            member.router.on_answer(sender, message)
        case m.Fill():
            member.destination.on_fill(sender, message)
        case m.FillEnded():
            member.destination.on_fill_ended(sender, message)
        case m.Filled():
            member.source.on_filled(sender, message)
        case m.FillRefused():
            member.source.on_fill_refused(sender, message)
        case m.Summary():
            member.repair.on_summary(sender, message)
        case m.RepairWanted():
            member.repair.on_wanted(sender, message)
        case m.Enlist():
            member.copies.on_enlist(sender, message)
        case m.Enlisted():
            member.activation.on_enlisted(sender, message)
        case m.MigrationRequest():
            member.source.on_request(sender, message)
        case m.MigrationReady():
            member.migrations.on_ready(sender, message)
        case m.MigrationRefused():
            member.migrations.on_refused(sender, message)
        case m.Subscribe():
            member.listeners.on_subscribe(sender, message)
        case m.Events():
            member.listeners.on_events(message)
        case m.Collecting():
            member.collectors.on_collecting(sender, message)
        case _:
            _deliver_control(member, sender, message)


def _deliver_control(member: Member, sender: MemberId, message: m.Message) -> None:
    agreement = member.membership.agreement
    match message:
        case m.TableOffer():
            member.ledger.on_offer(sender, message)
        case m.TableStored():
            member.ledger.on_stored(sender, message)
        case m.TableCommit():
            member.ledger.on_commit(sender, message)
        case m.TableFetch():
            member.ledger.on_fetch(sender, message)
        case m.TableReport():
            member.ledger.on_report(sender, message)
        case m.TableCheck():
            member.ledger.on_check(sender, message)
        case m.TableDiffers():
            member.ledger.on_differs(sender, message)
        case m.StateWanted():
            member.membership.on_state_wanted(sender, message)
        case m.Holdings():
            member.migrations.returned(sender, message)
        case m.AcceptLoss():
            member.migrations.accept_loss()
        case m.DeclareDead():
            member.membership.on_declare_dead(message)
        case m.Prepare():
            agreement.on_prepare(sender, message)
        case m.Promise():
            agreement.on_promise(sender, message)
        case m.Accept():
            agreement.on_accept(sender, message)
        case m.Accepted():
            agreement.on_accepted(sender, message)
        case m.Declined():
            agreement.on_declined(sender, message)
        case _:
            # Discovery travels without a link; over one it is a peer's mistake, and has no effect.
            member.out.note("message out of place", level="warning", message=type(message).__name__)
