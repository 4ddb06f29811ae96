"""The protocols, pure: events in, effects out, time passed as an argument. One folder answers one question."""
