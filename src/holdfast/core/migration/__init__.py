"""Which partition moves next? The master's side: planning, commit, failover, members that return or leave."""
