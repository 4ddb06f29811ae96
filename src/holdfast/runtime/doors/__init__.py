"""Listening sockets: ports, TLS, client connections, unauthenticated ones."""
