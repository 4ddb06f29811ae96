"""Drives one member: carries out its effects through the clock, network, disk and entropy of its world. Pure."""
