"""The log of a process, the audit log, slow operations, traces."""
