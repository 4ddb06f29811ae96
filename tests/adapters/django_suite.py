"""Django's own tests of cache backends, run against a cluster: django_suite.py FOLDER HOST:PORT,...

FOLDER is `tests` of Django's source of the version that is installed; `cache/tests.py` in there has `BaseCacheTests`,
which every backend of Django has to pass.
"""

from __future__ import annotations

import sys
import unittest

import django
from django.conf import settings
from django.test.runner import DiscoverRunner

folder, addresses = sys.argv[1:]
sys.path.insert(0, folder)
settings.configure(
    SECRET_KEY="of tests",
    ALLOWED_HOSTS=["testserver"],
    INSTALLED_APPS=["cache"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    USE_TZ=False,
)
django.setup()

from cache.tests import BaseCacheTests, caches_setting_for_tests  # noqa: E402
from django.core.cache import cache  # noqa: E402
from django.test import TestCase, override_settings  # noqa: E402

PICKLED = {
    "test_data_types": "stores a function and a class; the other types are in test_plain_data_types",
    "test_cache_read_for_model_instance": "stores an instance of a model",
    "test_cache_write_for_model_instance_with_deferred": "stores a query set",
    "test_cache_read_for_model_instance_with_deferred": "stores a query set",
    "test_set_fail_on_pickleerror": "wants the error of pickle",
    "test_add_fail_on_pickleerror": "wants the error of pickle",
}
"""Tests that only a backend passes that pickles, and why."""


@override_settings(
    CACHES=caches_setting_for_tests(
        BACKEND="holdfast.adapters.django.HoldfastCache",
        LOCATION=addresses,
        exclude={"cull", "zero_cull"},  # members evict, or refuse; a client does not cull
    )
)
class HoldfastCacheTests(BaseCacheTests, TestCase):
    def test_plain_data_types(self) -> None:
        for value in ("text", 42, True, [1, 2], (1, 2), {"A": 1}, {1: (2, None)}, b"bytes", 1.5, None):
            cache.set("k", value)
            found = cache.get("k", "absent")
            assert (found, type(found)) == (value, type(value))


for name, why in PICKLED.items():
    setattr(
        HoldfastCacheTests, name, unittest.skip(f"needs pickle: {why}")(getattr(HoldfastCacheTests, name))
    )

runner = DiscoverRunner(interactive=False, verbosity=2)
databases = runner.setup_databases()
result = runner.run_suite(unittest.defaultTestLoader.loadTestsFromTestCase(HoldfastCacheTests))
runner.teardown_databases(databases)
sys.exit(not result.wasSuccessful())
