"""Durability of a member: the vocabulary of the journal, its durable position, and recovery after a restart."""
