"""``tarsplit``: tars into shards of so many samples or bytes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click

from shoal.cli._samples import inputs_of, size, trusted
from shoal.cli._tool import main, say, tool
from shoal.cli.tar._apart import Apart
from shoal.cli.tar._spans import spans_of, widen_pipes
from shoal.files import exists, local_path, remove, scheme
from shoal.shards import ShardWriter, Span, WrittenShard, beside

__all__ = ["command", "run"]

_EXAMPLE = "tar -cf - --sort=name train | tarsplit -s 1e9 -o imagenet_train --maxshards 2"

_NUMBER = re.compile(r"\{(?:shard)?(?::(0?\d*d))?\}")
_PERCENT = re.compile(r"%0?\d*d")
_PLACEHOLDER = re.compile(r"\{(shard|abspath|basename|dirname|base|ext)\}")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What becomes of the samples."""

    num_samples: int
    max_size: int
    output: str
    start: int
    maxshards: int
    compress: bool
    index: bool
    hook: str | None
    nodelete: bool
    trust: bool


@tool("tarsplit", example=_EXAMPLE)
@click.option(
    "-n", "--num-samples", type=size, default="1e5", show_default=True, metavar="N", help="Samples in a shard at most."
)
@click.option(
    "-s", "--max-size", type=size, default="1e9", show_default=True, metavar="BYTES", help="Bytes in a shard at most."
)
@click.option("-o", "--output", default="temp", show_default=True, help="PREFIX, or a pattern: out-{shard:06d}.tar.")
@click.option("--start", type=click.IntRange(0), default=0, show_default=True, help="Number of the first shard.")
@click.option("--maxshards", type=size, default="1e9", metavar="N", help="Stop after so many shards.")
@click.option("-z", "--compress", is_flag=True, help="Compress the shards with gzip.")
@click.option("--index/--no-index", default=True, help="Put an index beside each shard (the default), or do not.")
@click.option("-C", "--command", "hook", metavar="CMD", help="Run CMD for each complete shard, then remove the shard.")
@click.option("--nodelete", is_flag=True, help="Keep the shards after CMD.")
@click.option("-v", "--verbose", is_flag=True, help="Name each tar on stderr when it is opened.")
@trusted
@click.argument("inputs", nargs=-1)
def command(inputs: tuple[str, ...], verbose: bool, trust: bool, **options: Any) -> None:
    """Write the samples of tars, as they are, into shards.

    INPUTS are tars: files, URLs, braces, - for standard input, which is also what is read without any. Samples stay
    whole, so only a shard of one sample can be larger than it should. A shard appears when it is complete. CMD may
    say {shard} for the shard, and {abspath}, {dirname}, {basename}, {base} or {ext} for parts of its name.
    """
    widen_pipes()
    _split(spans_of(inputs_of(inputs), trust=trust, verbose=verbose), _Plan(**options, trust=trust))


def _split(spans: Iterable[Span], plan: _Plan) -> None:
    pattern = _pattern(plan.output, plan.compress)

    def announce(url: str) -> None:
        samples, written = sum(shard.count for shard in writer.shards), sum(shard.size for shard in writer.shards)
        say(f"# writing {url} ({samples}, {written})")

    def finished(shard: WrittenShard) -> None:
        if plan.hook is not None:
            _run(plan.hook, shard.url, keep=plan.nodelete)

    writer = ShardWriter(
        pattern,
        plan.num_samples,
        plan.max_size,
        start=plan.start,
        on_begin=announce,
        on_shard=finished,
        compression=plan.compress or None,
        index=plan.index and scheme(pattern) != "pipe",
        trust=plan.trust,
    )
    apart = Apart()
    with writer:
        # The last shard of all may be full by its count, and then nothing more has to be read to know it.
        for span in islice(spans, min(plan.num_samples * plan.maxshards, sys.maxsize)):
            if not writer.write_span(apart.span(span), may_begin=writer.begun < plan.maxshards):
                break
    if words := apart.words():
        say(f"tarsplit: {words}")


def _pattern(output: str, compress: bool) -> str:
    """Make a pattern with ``%d`` of a prefix, or of a pattern in either way of writing.

    >>> _pattern("train", False), _pattern("a%/train", True)
    ('train-%06d.tar', 'a%%/train-%06d.tgz')
    >>> _pattern("t-{shard:04d}.tar", False), _pattern("t-%04d.tar", False)
    ('t-%04d.tar', 't-%04d.tar')
    """
    if _PERCENT.search(output):
        return output
    escaped = output.replace("%", "%%")
    if "{" in output:
        return _NUMBER.sub(lambda match: f"%{match[1] or 'd'}", escaped)
    return f"{escaped}-%06d.{'tgz' if compress else 'tar'}"


def _run(hook: str, url: str, *, keep: bool) -> None:
    """Run a command for a shard, and remove the shard unless it is kept; a command that fails ends everything."""
    line = _filled_in(hook, url)
    # Its standard input would be ours, which holds the next samples.
    done = subprocess.run(line, shell=True, stdin=subprocess.DEVNULL, check=False)  # noqa: S602 - it was given for that
    if done.returncode:
        say(f"tarsplit: the command for {url} failed with {done.returncode}; the shard is still there")
        raise click.exceptions.Exit(done.returncode if done.returncode > 0 else 128 - done.returncode)
    for each in () if keep else (url, beside(url)):
        if exists(each):
            remove(each)


def _filled_in(hook: str, url: str) -> str:
    """Put the name of a shard and its parts into a command, quoted for the shell.

    >>> _filled_in("gzip {base}{ext}; awk '{print}' {shard}", "out/my shard.tar")
    "gzip 'my shard'.tar; awk '{print}' 'out/my shard.tar'"
    """
    path = local_path(url)
    place = url if path is None else os.path.abspath(path)
    folder, name = os.path.split(place)
    base, ext = os.path.splitext(name)
    parts = {"shard": url, "abspath": place, "dirname": folder, "basename": name, "base": base, "ext": ext}
    return _PLACEHOLDER.sub(lambda match: shlex.quote(parts[match[1]]), hook)


def run() -> None:
    """Be the command ``tarsplit``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["tarsplit", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: tarsplit ...
    """
    main(command)
