"""Who connects from outside: ports, TLS, clients' sockets, and what strangers say there."""
