"""Settings of the whole test suite."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=60, deadline=None, derandomize=True)
settings.register_profile(
    "night", max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# A test must not change with whoever runs it: settings in the environment are for members that people start.
for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
    del os.environ[name]
