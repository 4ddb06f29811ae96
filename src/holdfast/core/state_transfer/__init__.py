"""How a replica gets what it lacks: one session for migrations, repair and returning members."""
