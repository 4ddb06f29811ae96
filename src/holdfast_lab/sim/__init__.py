"""The simulated world of one seed: virtual clock, faulty network and disks, and members that may crash at any
effect.
"""
