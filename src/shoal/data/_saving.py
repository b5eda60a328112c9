"""Shards in files: as Arrow, which anybody may read, or pickled, which only those may who trust the writer.

A folder holds one file for each shard, and a list of them that is written last: a folder without it is not whole.
"""

from __future__ import annotations

import json
import pickle
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from shoal import files
from shoal._optional import require
from shoal.data._base import Shards
from shoal.data._lazy import Recipe
from shoal.engines import current
from shoal.errors import PlanError, TrustError, UrlNotFoundError

if TYPE_CHECKING:
    from shoal.data._xshards import XShards

__all__ = ["SavingMethods"]

_LIST = "shards.json"


class SavingMethods(Shards):
    """Writing and reading of `XShards`."""

    def save(self, path: str) -> Self:
        """Write shards to a folder as Arrow files: frames, series, arrays, and lists, tuples and dicts of these.

        >>> import tempfile
        >>> from shoal.data import XShards
        >>> folder = tempfile.mkdtemp()
        >>> _ = XShards.from_shards([[1, 2], [3]]).save(f"{folder}/numbers")
        >>> XShards.load(f"{folder}/numbers").collect()
        [[1, 2], [3]]
        """
        require("pyarrow", "saving shards")
        self._saved(path, "arrow")
        return self

    def save_pickle(self, path: str, batchSize: int = 10) -> Self:  # noqa: N803  (the name users know)
        """Write shards of any kind to a folder, pickled."""
        self._saved(path, "pickle")
        return self

    @classmethod
    def load(cls, path: str) -> XShards:
        """Read what `save` wrote."""
        return _loaded(path, "arrow")

    @classmethod
    def load_pickle(
        cls,
        path: str,
        minPartitions: int | None = None,  # noqa: N803
        *,
        trust: bool = False,
    ) -> XShards:
        """Read what `save_pickle` wrote. A pickle can run any code, so it takes ``trust=True``."""
        if not trust:
            text = f"{files.display(path)} holds pickles, which can run any code when they are read"
            raise TrustError(f"{text}; if you know who wrote them, say trust=True")
        return _loaded(path, "pickle")

    def _saved(self, path: str, form: str) -> None:
        path, count = path.rstrip("/"), self.num_partitions()
        if _listed(path) is not None:
            raise PlanError(f"there are shards in {files.display(path)} already; they are not replaced")
        names = [f"{number:05d}-of-{count:05d}.{form}" for number in range(count)]
        sizes = self._numbered()._then(partial(_write, path=path, names=names, form=form))._gathered("save")
        listed = [{"name": name, "bytes": size} for name, size in zip(names, sizes, strict=True)]
        with files.open_write(f"{path}/{_LIST}") as target:
            target.write(json.dumps({"format": form, "shards": listed}, indent=1).encode())


def _loaded(path: str, form: str) -> XShards:
    from shoal.data._xshards import XShards  # which is made of this

    path = path.rstrip("/")
    listed = _listed(path)
    if listed is None:
        text = f"there is no {_LIST} in {files.display(path)}: nothing was saved there, or not to the end"
        raise UrlNotFoundError(text, url=files.display(path))
    if listed["format"] != form:
        load = {"arrow": "load", "pickle": "load_pickle"}.get(listed["format"], "nothing here")
        raise PlanError(f"{files.display(path)} was saved as {listed['format']}, which {load} reads")
    engine = current()
    names = [f"{path}/{shard['name']}" for shard in listed["shards"]]
    return XShards(Recipe.of(engine, engine.scatter(names)), chain=(partial(_read, form=form),))


def _listed(path: str) -> Any:
    try:
        with files.open_read(f"{path}/{_LIST}") as file:
            return json.loads(file.read())
    except FileNotFoundError:
        return None


def _write(numbered: Any, path: str, names: list[str], form: str) -> int:
    shard, number = numbered
    if form == "pickle":
        data: Any = pickle.dumps(shard, protocol=5)
    else:
        from shoal.data._arrow_shards import to_bytes

        data = to_bytes(shard)
    with files.open_write(f"{path}/{names[number]}") as target:
        return target.write(data)


def _read(url: str, form: str) -> Any:
    with files.open_read(url) as file:
        data = file.read()
    if form == "pickle":
        return pickle.loads(data)  # noqa: S301  (the caller said trust=True)
    from shoal.data._arrow_shards import from_bytes

    return from_bytes(data)
