"""The driver of one member: carries out its effects through ports for clock, network, disk and entropy. Pure."""
