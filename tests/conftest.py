"""What holds for every test."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

# The machine may be busy, and time is never a reason to fail.
hypothesis.settings.register_profile("shoal", deadline=None)
hypothesis.settings.load_profile("shoal")

#: Helpers of the tests have no examples in them, and some may be imported only once.
collect_ignore_glob = ["support/*", "fuzz_tar.py"]


@pytest.fixture(autouse=True, scope="session")
def _own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the indexes that tests make out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
