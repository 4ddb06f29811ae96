"""Settings of a Django project whose cache and sessions are in the grid; to be taken over into one's own.

pip install '.[django]' in the source folder
"""

from __future__ import annotations

import os

HOLDFAST = os.environ.get("HOLDFAST", "127.0.0.1:5701")

CACHES = {
    "default": {
        "BACKEND": "holdfast.adapters.django.HoldfastCache",
        "LOCATION": HOLDFAST,  # one member that answers is enough; several, apart by commas, also when one is down
        "TIMEOUT": 300,
        "KEY_PREFIX": "shop",
        "OPTIONS": {
            "map": "django",
            "patience_s": 5,  # how long a page waits for a cluster that is not ready
        },
    },
    "sessions": {
        "BACKEND": "holdfast.adapters.django.HoldfastCache",
        "LOCATION": HOLDFAST,
        "OPTIONS": {"map": "sessions"},
    },
}

SESSION_ENGINE = "django.contrib.sessions.backends.cache"
SESSION_CACHE_ALIAS = "sessions"

# The cache of whole pages: responses are stored, too.
MIDDLEWARE = [
    "django.middleware.cache.UpdateCacheMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.cache.FetchFromCacheMiddleware",
]

SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "only for trying it")
USE_TZ = True
