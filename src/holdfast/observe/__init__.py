"""Status, metrics, alarms and events of a member, as plain data."""
