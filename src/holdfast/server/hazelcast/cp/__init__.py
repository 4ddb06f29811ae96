"""Requests for CP objects: locks, semaphores, latches, atomic values, and the sessions of their clients."""
