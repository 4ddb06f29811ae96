"""Judges of what happened: pure functions over histories and states, used by the simulator, the chaos runs
and the tests.
"""
