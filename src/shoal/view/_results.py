"""What a pipeline makes of each sample that it reads, one by one and only of those that somebody looks at."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from shoal._kept import Kept
from shoal.abc import Sample
from shoal.pipeline.results import Results
from shoal.view._catalogue import Catalogue, Piece, weight
from shoal.view._looks import Problem

__all__ = ["ResultCatalogue"]

_KEPT = 64 * 2**20


class ResultCatalogue(Catalogue):
    """The results of a pipeline under the numbers of the samples that they are made of.

    >>> import shoal
    >>> dataset = shoal.from_arrays({"name": ["a", "b"]}).filter(lambda sample: sample["name"] == "b")
    >>> ResultCatalogue(Results(dataset)).samples([1, 0])
    [{'__key__': '000000001', 'name': 'b'}, {'__key__': '000000000', 'result': 'left out by filter(<lambda>)'}]
    """

    def __init__(self, results: Results) -> None:
        self._results = results
        self._made: Kept[list[Sample]] = Kept(_KEPT, weight)
        super().__init__(results.source)

    def scan_shard(self, at: int, fields: Collection[str] | None = None) -> Iterator[Piece]:
        """Make the results of one shard."""
        first, _ = self._bounds(at)
        for piece in super().scan_shard(at):
            begin = piece.first - first
            yield Piece(piece.first, [self._result(at, begin + place, one) for place, one in enumerate(piece.samples)])

    def _taken(self, at: int, offsets: list[int]) -> list[Sample]:
        return [self._kept(at, offset) for offset in offsets]

    def _kept(self, at: int, offset: int) -> Sample:
        def made() -> list[Sample]:
            return [self._result(at, offset, one) for one in super(ResultCatalogue, self)._taken(at, [offset])]

        return self._made.get((at, offset), made)[0]

    def _result(self, at: int, offset: int, sample: Sample) -> Sample:
        key = sample["__key__"]
        result = self._results.of(at, offset, dict(sample))  # stages may change what they are given
        if (failure := result.failure) is not None:
            return {"__key__": key, failure.stage: Problem(f"{failure.error}: {failure.message}")}
        if not result.samples:
            return {"__key__": key, "result": f"left out by {result.left_out_by}"}
        number = len(result.samples)
        first = result.samples[0]
        return first if number == 1 else {**first, "__key__": f"{first['__key__']} (first of {number})"}
