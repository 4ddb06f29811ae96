"""How does a replica get what it lacks? One session for migrations, repair and returning members."""
