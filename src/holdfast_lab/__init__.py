"""The laboratory: simulator, judges, campaigns, fuzzer and benchmarks. In the checkout, not in the wheel."""
