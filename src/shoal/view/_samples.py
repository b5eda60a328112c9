"""A dataset as the page sees it: some of its samples as tiles, one with all its fields, and their pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal._array_picture import picture_of
from shoal._kept import Kept
from shoal.abc import Sample
from shoal.errors import DecodeError, PlanError, SampleError
from shoal.shards.codecs import DecodeOptions, extension
from shoal.view._broken import Broken
from shoal.view._catalogue import Catalogue
from shoal.view._cells import heat, rests
from shoal.view._details import details_of, is_like_a_picture
from shoal.view._looks import Look, look_of, plain
from shoal.view._pictures import File, labels_of, painted, small, written
from shoal.view._search import Query, Searches
from shoal.view._sound import sound_of
from shoal.view._survey import Survey
from shoal.view._tiles import class_field_of, tile_of

if TYPE_CHECKING:
    from shoal.pipeline import Failure

__all__ = ["Samples"]

_THUMBNAILS = 64 * 2**20
_EDGE = 4096
_HEAT = 512
_PATIENCE = 30.0
#: Files that browsers play as they are; others are sent as WAV.
_PLAYED = {"wav": "audio/wav", "flac": "audio/flac", "ogg": "audio/ogg", "mp3": "audio/mpeg"}
_MOVIES = {"mp4": "video/mp4", "webm": "video/webm", "mov": "video/mp4", "mkv": "video/webm"}


class Samples:
    """The samples of a catalogue, made ready to be looked at."""

    def __init__(
        self,
        catalogue: Catalogue,
        title: str,
        *,
        class_field: str | None = None,
        failures: Iterable[Failure] = (),
        trust: bool = False,
    ) -> None:
        self.catalogue, self.title = catalogue, title
        self._options = DecodeOptions(trust=trust)
        self._asked_class = class_field
        self._thumbnails: Kept[File] = Kept(_THUMBNAILS, lambda file: len(file.data))
        self.searches = Searches(catalogue, self._options)
        self.broken = Broken(catalogue, self._options, failures)
        self._survey: Survey | None = None

    @property
    def class_field(self) -> str | None:
        """The field that holds the class, as the first sample tells."""
        if not self.catalogue.count_some(_PATIENCE).samples:
            return self._asked_class
        return class_field_of(self.catalogue.samples([0])[0], self._asked_class)

    def described(self) -> dict[str, Any]:
        """Tell how many there are, and what they have."""
        total = self.catalogue.count_some(_PATIENCE)
        first = self.catalogue.samples([0])[0] if total.samples else {}
        return {
            "title": self.title,
            "samples": total.samples,
            "shards": total.shards,
            "counted": total.counted,
            "complete": total.complete,
            "fields": [name for name in first if not name.startswith("__")],
            "class_field": self.class_field,
        }

    def tiles(self, query: Query, start: int, count: int, after: int) -> dict[str, Any]:
        """Give some tiles of what a query finds, with how far it is; waits a moment for what is not found yet."""
        total = self.catalogue.count_some(_PATIENCE)
        if not query:
            numbers: Sequence[int] = range(start, min(start + count, total.samples))
            state = {"found": total.samples, "seen": total.samples, "done": total.complete, "ticks": 0, "error": ""}
        else:
            search = self.searches.get(query)
            search.job.wait(after, 2.0 if after < 0 else 0.5)
            ticks, done = search.job.ticks, search.job.done
            numbers = search.numbers(start, count)
            state = {"found": len(search.found), "seen": search.seen, "done": done, "ticks": ticks}
            state["error"] = search.job.error
        field = self.class_field
        samples = self.catalogue.samples(numbers) if len(numbers) else []
        pairs = zip(numbers, samples, strict=True)
        tiles = [tile_of(number, sample, self._options, field) for number, sample in pairs]
        return {**state, "total": total.samples, "start": start, "tiles": tiles}

    def details(self, number: int) -> dict[str, Any]:
        """Describe one sample."""
        sample = self._sample(number)
        shard, offset = self.catalogue.place(number)
        fields = details_of(sample, self._options)
        for field in fields:
            if field["kind"] == "broken":
                self.broken.met(number, field["name"], DecodeError(field["problem"]))
        place = {"shard": plain(shard.url), "offset": offset}
        return {"number": number, "key": plain(sample["__key__"]), **place, "fields": fields}

    def thumbnail(self, number: int, name: str, edge: int) -> File:
        """Make a small picture of a field."""
        return self._thumbnails.get((number, name, edge), lambda: self._thumbnail(number, name, edge))

    def picture(self, number: int, name: str, form: str) -> File:
        """Make a picture of a field: as it is, as a mask, or as a heat-map."""
        look = self._look(number, name)
        match form, look.kind:
            case "mask", "picture" | "array":
                return written(labels_of(name, look.value).convert("RGBA"))
            case "heat", "array":
                return written(heat(rests(look.value, _HEAT)))
            case "picture", "picture":
                return written(small(name, look.value, _EDGE))
            case "picture", "array":
                return written(picture_of(look.value))
        raise PlanError(f"{name} of sample {number} is {look.kind}, and no {form}")

    def media(self, number: int, name: str) -> File:
        """Give sound or a film as a browser plays it."""
        look = self._look(number, name)
        end = extension(name)
        if look.kind == "video":
            return File(bytes(look.value), _MOVIES.get(end, "video/mp4"))
        if look.kind != "sound":
            raise PlanError(f"{name} of sample {number} is {look.kind}, and no sound")
        if isinstance(look.value, bytes | memoryview) and end in _PLAYED:
            return File(bytes(look.value), _PLAYED[end])
        return File(sound_of(name, look.value).wav(), "audio/wav")

    def raw(self, number: int, name: str) -> bytes:
        """Give the bytes of a field, or the text of a value."""
        value = self._sample(number).get(name)
        if isinstance(value, bytes | memoryview):
            return bytes(value)
        return str(plain(value)).encode()

    def survey(self, *, whole: bool) -> Survey:
        """Give the count of classes and sizes, begun if it is new."""
        if self._survey is None or (whole and not self._survey.whole) or self._survey.job.stopped:
            if self._survey is not None:
                self._survey.job.stop()
            self._survey = Survey(self.catalogue, self._options, self.class_field, whole=whole)
        return self._survey

    def stop_survey(self) -> None:
        """End the count; what is known stays."""
        if self._survey is not None:
            self._survey.job.stop()

    def close(self) -> None:
        """End what runs."""
        self.searches.stop()
        self.stop_survey()
        self.broken.stop_check()
        self.catalogue.counting.stop()

    def _thumbnail(self, number: int, name: str, edge: int) -> File:
        look = self._look(number, name)
        try:
            if look.kind == "picture":
                return written(small(name, look.value, edge))
            if look.kind == "array":
                array = np.asarray(look.value)
                is_picture = is_like_a_picture(array)
                image = picture_of(array) if is_picture else heat(rests(array, edge))
                return written(painted(name, image, edge))
        except SampleError as error:
            self.broken.met(number, name, error)
            raise
        raise PlanError(f"{name} of sample {number} is {look.kind}, of which there is no small picture")

    def _look(self, number: int, name: str) -> Look:
        sample = self._sample(number)
        if name not in sample:
            raise PlanError(f"sample {number} has no field {name}")
        return look_of(name, sample[name], self._options)

    def _sample(self, number: int) -> Sample:
        return self.catalogue.samples([number])[0]
