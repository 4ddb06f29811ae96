"""The in-process API: `holdfast.Member`, its maps and transactions."""
