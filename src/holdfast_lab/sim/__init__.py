"""The simulated world of one seed: virtual clock, faulty network, disks and members that crash at any effect."""
