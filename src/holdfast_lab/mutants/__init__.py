"""Mutation tests of the safety-critical modules: a unit test must fail for every small deliberate mistake."""
