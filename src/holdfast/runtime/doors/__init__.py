"""Listening sockets: ports, TLS, client connections, limits of unauthenticated ones."""
