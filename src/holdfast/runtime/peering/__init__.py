"""Members to each other: connections, proofs of the secret, and where a seed's name leads."""
