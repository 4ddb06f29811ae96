"""What does a replica hold? Its counter, recent updates, and state: the entries of a map, a service."""
