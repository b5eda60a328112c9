"""``shoal run``: one command over many shards."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from shoal.cli._jobs._job import Job
from shoal.cli._tool import FAILED, main, say, tool
from shoal.errors import PlanError
from shoal.files import expand_braces
from shoal.settings import processors

if TYPE_CHECKING:
    from shoal.cli._jobs._runners import Runner

__all__ = ["command", "run"]

_EXAMPLE = "shoal run --shards '{0000..0999}' -p 16 -- tarproc -c 'run-ocr *.png' in-{}.tar -o out-{}.tar"

#: Failed shards that are named; the folder of logs has all.
_NAMED = 20


@dataclass(frozen=True, slots=True)
class _Options:
    """How the command runs, and where."""

    workers: int | None
    retries: int
    backoff: float
    state: Path | None
    dry_run: bool
    engine: str
    address: str | None
    print_kubernetes: bool
    image: str
    name: str | None
    namespace: str | None
    cpu: str | None
    memory: str | None


@tool("run", example=_EXAMPLE)
@click.option("-s", "--shards", multiple=True, help="Shards, in braces as in {0000..0999}.")
@click.option("-T", "--files-from", multiple=True, metavar="FILE", help="Read shards from a file, one a line.")
@click.option("-p", "--workers", type=click.IntRange(1), help="Commands at the same time.  [default: processors]")
@click.option("--retries", default=2, show_default=True, type=click.IntRange(0), help="Attempts after the first.")
@click.option("--backoff", default=1.0, show_default=True, type=click.FloatRange(0), help="Seconds before the second.")
@click.option("--replace", "mark", default="{}", show_default=True, help="What a shard is put in place of.")
@click.option("--check-output", "outputs", multiple=True, help="What a command leaves.  [default: what follows -o]")
@click.option("--state", type=click.Path(path_type=Path), help="Folder that remembers.  [default: .shoal-run/...]")
@click.option("--dry-run", is_flag=True, help="Show the commands, and run none.")
@click.option("--engine", type=click.Choice(["local", "ray", "spark", "dask"]), default="local", show_default=True)
@click.option("--address", help="Where the engine runs; without, one is started here.")
@click.option("--print-kubernetes", is_flag=True, help="Write a Job of Kubernetes that does the same, and run nothing.")
@click.option("--image", default="", help="The image of its pods.")
@click.option("--name", help="Its name.")
@click.option("--namespace", help="Its namespace.")
@click.option("--cpu", help="Processors for each pod, as in 4 or 500m.")
@click.option("--memory", help="Memory for each pod, as in 8Gi.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND...")
def command(
    words: Sequence[str],
    shards: Sequence[str],
    files_from: Sequence[str],
    mark: str,
    outputs: Sequence[str],
    **options: Any,
) -> None:
    """Run COMMAND once for each shard, with the shard's text in place of {} in all its words.

    No shell looks at the words; for one, write -- sh -c '...'. A shard is finished when its command has ended with 0
    and left its output. Run the same line again to go on: finished shards are passed over, half ones are done anew.
    What a command says is in a log for its shard. If shards fail for good, the others are still done, and the exit code
    is 1.
    """
    job, listed, chosen = Job.of(words, mark, outputs), _listed(shards, files_from), _Options(**options)
    if chosen.print_kubernetes:
        _print_manifest(job, listed, chosen)
    elif chosen.dry_run:
        for shard in listed:
            click.echo(shlex.join(job.command(shard)))
    else:
        _work(job, listed, chosen)


command.allow_interspersed_args = False  # what follows the command's name is the command's, also without --


def _listed(given: Sequence[str], lists: Sequence[str]) -> list[str]:
    """Write out what a user gave for shards."""
    found = [shard for text in given for shard in expand_braces(text)]
    found += [shard for path in lists for shard in _lines(path)]
    if not found:
        raise PlanError("there are no shards; write them as in --shards '{0000..0999}'")
    twice = next((shard for shard, other in pairwise(sorted(found)) if shard == other), None)
    if twice is not None:
        raise PlanError(f"the shard {twice} is named twice, and two commands would write the same output")
    return found


def _lines(path: str) -> list[str]:
    with click.open_file(path, encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip()]


def _print_manifest(job: Job, shards: Sequence[str], options: _Options) -> None:
    from shoal.cli._jobs._kubernetes import Pod, manifest
    from shoal.cli._yaml import to_yaml

    name = options.name or f"shoal-{re.sub('[^a-z0-9]+', '-', job.name.lower())}".strip("-")
    pod = Pod(options.image, name, options.namespace, options.cpu, options.memory)
    workers = options.workers or len(shards)
    click.echo(to_yaml(manifest(job, shards, pod, workers=workers, retries=options.retries)), nl=False)


def _work(job: Job, shards: Sequence[str], options: _Options) -> None:
    from shoal.cli._jobs._agenda import Agenda
    from shoal.cli._jobs._report import reporting
    from shoal.cli._jobs._state import State
    from shoal.cli._jobs._work import Work

    if options.engine == "local" and job.mark not in job.words[0] and shutil.which(job.words[0]) is None:
        raise PlanError(f"there is no command {job.words[0]} here; what only a shell knows is run by -- sh -c '...'")
    state = State(options.state or Path(".shoal-run") / f"{job.name}-{job.digest}", job)
    with state.held() as lock:
        left = state.left(shards)
        before = len(shards) - len(left)
        say(f"{len(shards)} shards, {before} finished before; logs are in {state.folder}/logs")
        if not left:
            return
        with _ended_by_term():
            runner, workers = _runner(options, state.folder, lock)
            agenda = Agenda(left, retries=options.retries, backoff=options.backoff)
            with reporting(len(shards), before) as report:
                failed = Work(job, agenda, state, runner).do(report, workers)
            runner.stop()
    if failed:
        more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
        say(f"shoal run: {len(failed)} of {len(shards)} shards failed: {', '.join(failed[:_NAMED])}{more}")
        raise click.exceptions.Exit(FAILED)


def _runner(options: _Options, folder: Path, lock: int) -> tuple[Runner, int]:
    """Choose who runs the commands, and how many at a time."""
    from shoal.cli._jobs._runners import EngineRunner, LocalRunner

    if options.engine == "local":
        return LocalRunner(lock), options.workers or processors()
    runner = EngineRunner(options.engine, options.address, options.workers, folder)
    return runner, options.workers or runner.workers


@contextmanager
def _ended_by_term() -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does: with all that it began."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run() -> None:
    """Be the command ``shoal run``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["shoal run", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: shoal run ...
    """
    main(command)
