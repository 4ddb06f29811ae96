"""What must survive a crash? The vocabulary of the journal, who waits for the disk, and what a restart makes of it."""
