"""Where each replica should be, and the migration steps that bring it there. Pure."""
