"""Codecs: messages between members, Holdfast's own client protocol, journal, checkpoints."""
