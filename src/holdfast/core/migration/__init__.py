"""The master's side of migrations: planning, commit, failover, members that return or leave."""
