"""What a member writes down for people: its log, the audit log, slow operations, traces."""
