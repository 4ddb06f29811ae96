"""What if a rule that keeps data safe did not hold? Careless twins of what members do, for tests and campaigns."""
