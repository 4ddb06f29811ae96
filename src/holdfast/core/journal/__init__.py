"""What must survive a crash? The vocabulary of the journal, its durable position, and recovery after a restart."""
