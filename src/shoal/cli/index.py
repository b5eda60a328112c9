"""``shoal index``: index files for shards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import click

from shoal.abc import Shard
from shoal.cli._at_once import Stop, at_once
from shoal.cli._checking import dali_beside
from shoal.cli._fields import many
from shoal.cli._samples import trusted
from shoal.cli._tool import FAILED, main, say, tool
from shoal.errors import IndexFileError, PlanError, ShoalError, UrlError
from shoal.files import expand, local_path, scheme, stat
from shoal.shards import beside, load_index, save_index, write_dali_index
from shoal.sources import TarSource

__all__ = ["command", "run"]

_EXAMPLE = "shoal index 'train-{0000..0147}.tar'"


@tool("index", example=_EXAMPLE)
@click.option("--to", metavar="FOLDER", help="Put the indexes here.  [default: beside the shards]")
@click.option("--dali", is_flag=True, help="Write them as DALI reads them: a.idx for a.tar.")
@click.option("--force", is_flag=True, help="Make those anew, too, that are up to date.")
@click.option(
    "-p", "--workers", type=click.IntRange(min=1), help="Shards read at once.  [default: as many as processors]"
)
@click.option("-v", "--verbose", is_flag=True, help="Say what was done about each shard.")
@trusted
@click.argument("urls", nargs=-1, required=True)
def command(
    urls: tuple[str, ...], to: str | None, dali: bool, force: bool, workers: int | None, verbose: bool, trust: bool
) -> None:
    """Make index files of tars, with which samples are counted, picked and dealt without reading shards first.

    URLS are files, braces, globs and folders. Indexes that are up to date are left alone. A shard that cannot be
    indexed does not keep the others from it; the exit code is then 1.
    """
    jobs = _jobs(expand(urls), to, dali)
    outcomes = at_once(partial(_done, force, trust), jobs, workers)
    for job, outcome in zip(jobs, outcomes, strict=True):
        if isinstance(outcome, ShoalError):
            say(f"shoal: {outcome}")
        elif verbose:
            say(f"# {job.target}: {outcome}")
    failed = sum(isinstance(outcome, ShoalError) for outcome in outcomes)
    fresh = outcomes.count("up to date")
    say(f"# {many(len(jobs), 'shard')}: {len(jobs) - fresh - failed} indexed, {fresh} up to date, {failed} failed")
    if failed:
        raise click.exceptions.Exit(FAILED)


@dataclass(frozen=True, slots=True)
class _Job:
    shard: str
    target: str
    dali: bool

    def is_fresh(self) -> bool:
        """Tell whether the index is of the shard as it is now."""
        if self.dali:
            path = local_path(self.shard)
            return path is not None and _is_newer(self.target, path)
        info = stat(self.shard)
        try:
            index = load_index(self.target)
        except (UrlError, IndexFileError):
            return False
        return bool(info.version) and (index.shard_size, index.version) == (info.size, info.version)


def _is_newer(path: str, than: str) -> bool:
    return os.path.exists(path) and os.stat(path).st_mtime_ns >= os.stat(than).st_mtime_ns


def _jobs(shards: Sequence[str], to: str | None, dali: bool) -> list[_Job]:
    jobs = [_Job(shard, _target(shard, to, dali), dali) for shard in shards]
    taken: dict[str, str] = {}
    for job in jobs:
        other = taken.setdefault(job.target, job.shard)
        if other != job.shard:
            raise PlanError(f"the indexes of {other} and {job.shard} would both be {job.target}; use two folders")
    return jobs


def _target(shard: str, to: str | None, dali: bool) -> str:
    if scheme(shard) in ("-", "pipe"):
        raise PlanError(f"{shard} can be read only once, so an index of it is of no use")
    if to is not None:
        name = os.path.basename(shard.rstrip("/"))
        return os.path.join(to, dali_beside(name) if dali else beside(name))
    if not dali:
        return beside(shard)
    path = local_path(shard)
    if path is None:
        raise PlanError(f"DALI reads local indexes; say with --to FOLDER where that of {shard} is to be")
    return dali_beside(path)


def _done(force: bool, trust: bool, job: _Job, stop: Stop) -> str | ShoalError:
    try:
        stop.check()
        if not force and job.is_fresh():
            return "up to date"
        index = TarSource(job.shard, trust=trust).index(Shard(job.shard), anew=force)
        if job.dali:
            write_dali_index(index, job.target)
        else:
            save_index(index, job.target)
    except ShoalError as error:
        return error
    return many(len(index), "sample")


def run() -> None:
    """Be the command ``shoal index``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["shoal index", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: shoal index ...
    """
    main(command)
