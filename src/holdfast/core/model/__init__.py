"""The nouns of the protocols: identities, records, counters, tables, views, operations."""
