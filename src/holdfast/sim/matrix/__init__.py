"""The crash matrix: every form of migration, with the master in every role, and every fault at every packet."""
