"""What is looked at: samples, a pipeline, trainings, a store, each if there is one."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shoal._kinds import files_of_one_kind, kind_of, source_of
from shoal.abc import Source, SupportsRandomAccess
from shoal.errors import PlanError, UrlNotFoundError
from shoal.view._catalogue import Catalogue
from shoal.view._curves import Runs, is_run
from shoal.view._samples import Samples
from shoal.view._stores import StoreView, is_store

if TYPE_CHECKING:
    from shoal.pipeline import Dataset, Failure
    from shoal.pipeline.outline import Outline
    from shoal.view._plans import LivePlan

__all__ = ["Options", "Subject", "subject_of"]


@dataclass(frozen=True, slots=True)
class Options:
    """How data is looked at."""

    class_field: str | None = None
    """The field that holds the class; by default one with a usual name."""
    failures: Sequence[Failure] = ()
    """Samples that are known to be broken, from a ledger."""
    trust: bool = False
    """Whether formats that can run code are decoded."""


@dataclass(frozen=True, slots=True)
class Subject:
    """All that a page shows."""

    title: str
    samples: Samples | None = None
    results: Samples | None = None
    """What the pipeline makes of the samples."""
    plan: LivePlan | None = None
    runs: Runs | None = None
    store: StoreView | None = None

    @property
    def parts(self) -> list[str]:
        """Name what there is."""
        return [name for name in ("samples", "results", "plan", "runs", "store") if getattr(self, name) is not None]

    def close(self) -> None:
        """End what runs, and let go of everything."""
        if self.plan is not None:
            self.plan.stop()
        for samples in (self.samples, self.results):
            if samples is not None:
                samples.close()
        if self.store is not None:
            self.store.close()


def subject_of(what: Iterable[object], options: Options | None = None) -> Subject:
    """Find out what some arguments are: URLs of data, datasets, folders of trainings, a store.

    >>> import shoal
    >>> subject = subject_of([shoal.from_arrays({"x": range(5)})])
    >>> subject.parts, subject.samples.catalogue.count_all().samples
    (['samples', 'plan'], 5)
    >>> subject.close()
    """
    options = options or Options()
    given = list(what)
    names = [os.fspath(each) for each in given if isinstance(each, str | os.PathLike)]
    stores = [name for name in names if is_store(name)]
    runs = [name for name in names if name not in stores and is_run(name)]
    data = [name for name in names if name not in stores and name not in runs]
    others = [each for each in given if not isinstance(each, str | os.PathLike)]
    if len(others) > 1 or len(stores) > 1 or (others and data):
        raise PlanError("a page shows one dataset and one store; open another page for another")
    if not given:
        raise PlanError("there is nothing to look at: name data, a pipeline, the folder of a training, or a store")
    samples = _samples_of_files(data, options) if data else None
    shelf = StoreView(stores[0]) if stores else None
    found = Subject("", samples, runs=Runs(runs) if runs else None, store=shelf)
    found = _with_dataset(found, others[0], options) if others else found
    named = [part for part in found.parts if part != "results" and (part != "plan" or found.samples is None)]
    titles = [getattr(found, part).title for part in named]
    return replace(found, title="; ".join(titles))


def _with_dataset(found: Subject, given: object, options: Options) -> Subject:
    """Add a pipeline, the samples that it reads, and what it makes of them."""
    from shoal.pipeline import Dataset  # most pages are there sooner without
    from shoal.view._plans import LivePlan

    if not isinstance(given, Dataset):
        raise PlanError(f"a {type(given).__name__} cannot be looked at; give URLs, a Dataset, or folders")
    samples = _samples_of(given, options)
    results = None if samples is None else _results_of(given, options)
    return replace(found, samples=samples, results=results, plan=LivePlan(given, _titled(given)))


def _samples_of_files(urls: Sequence[str], options: Options) -> Samples:
    if any(url == "-" or url.startswith("pipe:") for url in urls):
        raise PlanError("a stream is read once, and a page looks at any sample: save it to a file first")
    files = _files(urls)
    kind = kind_of(files[0])

    def narrow(fields: Collection[str]) -> Source:
        return source_of(files, kind=kind, fields=fields if kind == "tar" else None, trust=options.trust)

    catalogue = Catalogue(source_of(files, kind=kind, trust=options.trust), narrow)
    return _samples(catalogue, ", ".join(urls), options)


def _files(urls: Sequence[str]) -> list[str]:
    """List the files of data; where a folder has others, say how they become data."""
    try:
        files = files_of_one_kind(urls)
    except UrlNotFoundError:
        files = []
        if not any(map(os.path.isdir, urls)):
            raise
    if not files:
        packing = "; files of your own are packed by: shoal convert FOLDER/ 'shards/%04d.tar'"
        raise PlanError(f"{', '.join(urls)}: there are no shards and no tables{packing}")
    return files


def _samples_of(dataset: Dataset, options: Options) -> Samples | None:
    """Give the samples that a pipeline reads, as they lie, if they lie in one place where any can be picked."""
    from shoal.pipeline.outline import outline

    source = outline(dataset).source
    if source is None or not isinstance(source, SupportsRandomAccess):
        return None
    return _samples(Catalogue(source), _titled(dataset), options)


def _results_of(dataset: Dataset, options: Options) -> Samples | None:
    """Give what a pipeline makes of those samples, if it takes them one by one."""
    from shoal.pipeline.results import Results
    from shoal.view._results import ResultCatalogue

    results = Results(dataset)
    if not results.stages:
        return None
    return _samples(ResultCatalogue(results), " → ".join(results.stages), replace(options, failures=()))


def _samples(catalogue: Catalogue, title: str, options: Options) -> Samples:
    return Samples(catalogue, title, class_field=options.class_field, failures=options.failures, trust=options.trust)


def _titled(dataset: Dataset) -> str:
    from shoal.pipeline.outline import outline

    def names(plan: Outline) -> str:
        return repr(plan.source) if plan.source is not None else " + ".join(map(names, plan.components))

    return names(outline(dataset))
