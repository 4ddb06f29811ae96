"""A world of one seed: virtual clock, faulty network, members that crash at any effect; one seed, one run,
one verdict.
"""
