"""How does a partition move without loss? Three roles: master, source, destination."""
