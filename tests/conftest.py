"""What holds for every test."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import hypothesis
import pytest

from support import clusters

# The machine may be busy, and time is never a reason to fail. The same examples are drawn each time, so that what
# passed passes again and what fails can be repeated; `make soak` draws thousands of others, by chance.
_NO_HURRY = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("shoal", max_examples=30, derandomize=True, **_NO_HURRY)
hypothesis.settings.register_profile("soak", max_examples=3000, **_NO_HURRY)
hypothesis.settings.load_profile(os.environ.get("SHOAL_TEST_PROFILE", "shoal"))

# Ray's workers would have what others leave of the processors, and tests beside them leave little.
os.environ.setdefault("RAY_worker_niceness", "0")

# Threads that wait for work would turn round and round, and take the processors from the tests beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Programs of tests are short: what Java's second compiler makes of them is done when they are over.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

#: Helpers of the tests have no examples in them, and some may be imported only once.
collect_ignore_glob = ["support/*", "kill_matrix/*", "fuzz_tar.py"]


@pytest.fixture(autouse=True, scope="session")
def _own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the indexes that tests make out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _engines_that_stay() -> Iterator[None]:
    """End what tests have left running for one another."""
    yield
    clusters.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no process is left with one of them at the end."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])
