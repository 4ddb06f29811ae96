"""The process log, the audit log, slow operations, and traces."""
