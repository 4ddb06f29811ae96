"""The crash matrix: every form of migration, every role of the master, every fault at every packet."""
