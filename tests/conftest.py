"""What holds for every test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import hypothesis
import pytest

# The machine may be busy, and time is never a reason to fail.
_NO_HURRY = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("shoal", **_NO_HURRY)
hypothesis.settings.register_profile("soak", max_examples=3000, **_NO_HURRY)
hypothesis.settings.load_profile(os.environ.get("SHOAL_TEST_PROFILE", "shoal"))

#: Helpers of the tests have no examples in them, and some may be imported only once.
collect_ignore_glob = ["support/*", "fuzz_tar.py"]


@pytest.fixture(autouse=True, scope="session")
def _own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the indexes that tests make out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
