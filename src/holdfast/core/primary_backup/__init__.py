"""Engine 1: a primary decides, numbers its updates and sends them to its backups."""
