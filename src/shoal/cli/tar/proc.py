"""``tarproc``: a command for every sample."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from types import FrameType
from typing import Any, BinaryIO, NoReturn

import click

from shoal.abc import Sample
from shoal.cli._fields import alternatives
from shoal.cli._progress import clear_line, watched
from shoal.cli._samples import Input, inputs_of, open_output, put, read_samples, size, trusted
from shoal.cli._tool import main, say, tool
from shoal.cli.tar._apart import Apart
from shoal.cli.tar._commands import Commands, Recipe
from shoal.cli.tar._crew import mapped
from shoal.cli.tar._failures import Failures
from shoal.cli.tar._texts import TEXTS, text_samples
from shoal.cli.tar._work import Result, Work
from shoal.cli.tar._workplace import Layout
from shoal.errors import EncodeError, SampleError
from shoal.settings import processors
from shoal.shards import TarWriter

__all__ = ["command", "run"]

_EXAMPLE = "tarproc -p 4 -c 'gm mogrify -resize 256x256 *.jpg' small.tar -o out.tar"

#: What becomes of a sample whose command failed.
_FATES = {"skip": "left out", "ignore": "kept nevertheless", "abort": "not written"}


@tool("tarproc", example=_EXAMPLE)
@click.option("-c", "--command", "text", help="Commands for the shell, run in the folder of each sample.")
@click.option("-s", "--script", type=click.Path(), help="A file of commands, in place of -c.")
@click.option("--interpreter", default="bash", show_default=True, help="What runs them.")
@click.option(
    "-p",
    "--parallel",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="How many run at once; 0: as many as processors.",
)
@click.option("--ordered", is_flag=True, help="Write samples in the order of the input, also with -p.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Kill a command, and all it started, after so long.")
@click.option(
    "-e",
    "--error-handling",
    type=click.Choice(list(_FATES)),
    default="skip",
    show_default=True,
    help="A sample whose command fails: leave it out, keep it as it is then, or end.",
)
@click.option("-f", "--fields", help="Use only these fields: 'jpg cls', and of a;b the first.")
@click.option("-b", "--base", default="sample", show_default=True, help="What the files of a sample are called.")
@click.option("-S", "--subdirs", is_flag=True, help="Take each subfolder for a sample, with its key in sample.__key__.")
@click.option("--add-log", metavar="FIELD", help="Add what the command said as a field.")
@click.option(
    "-O", "--command-output", type=click.File("wb"), help="Where to put what commands say.  [default: stderr]"
)
@click.option("-q", "--quiet", is_flag=True, help="Do not show what commands say.")
@click.option(
    "-w",
    "--working-dir",
    type=click.Path(exists=True, file_okay=False),
    help="Where to make the folders.  [default: $TMPDIR]",
)
@click.option("--keepdir", is_flag=True, help="Leave the folders there, and say where.")
@click.option(
    "--mode",
    type=click.Choice(["tar", *TEXTS]),
    default="tar",
    show_default=True,
    help="What the inputs are: tars, or texts with a sample in each line, page or key.",
)
@click.option("--count", metavar="N", help="Stop after N samples.")
@click.option("-o", "--output", default="-", show_default=True, help="The tar to write.")
@click.option("-v", "--verbose", is_flag=True, help="Say how many samples there were.")
@trusted
@click.argument("inputs", nargs=-1)
def command(inputs: tuple[str, ...], mode: str, count: str | None, output: str, trust: bool, **options: Any) -> None:
    """Run a command for every sample, in a private folder that holds its fields as files: sample.jpg, sample.cls.

    INPUTS are tars: files, URLs, braces, - for standard input, which is also what is read without any. The files that
    are there when the command has ended are the sample: what is new or changed is taken, what was removed is gone, and
    without any there is no sample. The key is in sample.__key__, where it may be changed. Files that are called
    sampleX.jpg make another sample, whose key ends in -X; other files are not looked at.

    Samples go to standard output or -o, what the commands say to standard error. At the end the samples whose commands
    failed are named; that is no failure of tarproc itself, except with -e abort.
    """
    work = _work(**options)
    samples = islice(_read(inputs_of(inputs), mode, trust=trust), None if count is None else size(count))
    with open_output(output, trust=trust) as writer, _ended_by_signals():
        sink = _Sink(writer, options["error_handling"], _speech(**options))
        with closing(_results(work, samples, **options)) as results:
            for result in watched(results, "done"):
                sink.take(result)
    sink.sum_up(verbose=options["verbose"])


def _read(inputs: list[Input], mode: str, *, trust: bool) -> Iterator[Sample]:
    return read_samples(inputs, trust=trust) if mode == "tar" else text_samples(inputs, mode, trust=trust)


class _Sink:
    """Writes what became of samples, and takes note of what failed."""

    def __init__(self, writer: TarWriter, on_error: str, speech: BinaryIO | None) -> None:
        self._writer, self._on_error, self._speech = writer, on_error, speech
        self._failures, self._apart, self._taken = Failures(), Apart(), 0

    def take(self, result: Result) -> None:
        """Write the samples of a result, and show what its command said."""
        self._taken += 1
        with result:
            if result.log is not None and self._speech is not None:
                clear_line()
                result.log.seek(0)
                shutil.copyfileobj(result.log, self._speech)
                self._speech.flush()
        if result.error is not None:
            self._judge(result.placed(result.error))
        for sample in result.samples:
            try:
                put(self._writer, self._apart.sample(sample))
            except EncodeError as error:
                self._apart.forget()
                self._judge(result.placed(error))

    def sum_up(self, *, verbose: bool) -> None:
        """Say what a user should know at the end."""
        words = [self._apart.words(), *self._failures.words(self._taken, _FATES[self._on_error])]
        for line in filter(None, words):
            say(f"tarproc: {line}")
        if verbose:
            say(f"# {self._taken} samples read, {self._writer.count} written")

    def _judge(self, error: SampleError) -> None:
        if self._on_error == "abort":
            raise error
        self._failures.add(error)


def _work(
    text: str | None,
    script: str | None,
    interpreter: str,
    timeout: float | None,
    fields: str | None,
    base: str,
    subdirs: bool,
    working_dir: str | None,
    error_handling: str,
    add_log: str | None,
    keepdir: bool,
    **_: Any,
) -> Work:
    return Work(
        Commands(Recipe.of(text, script, interpreter, timeout)),
        Layout(base, None if fields is None else alternatives(fields.replace(",", " ")), subdirs, working_dir),
        keeps_failed=error_handling == "ignore",
        log_field=add_log,
        keeps_folders=keepdir,
    )


def _results(
    work: Work, samples: Iterator[Sample], *, parallel: int, ordered: bool, **_: Any
) -> Generator[Result, None, None]:
    return mapped(work, samples, workers=parallel or processors(), ordered=ordered, end=work.commands.end)


def _speech(quiet: bool, command_output: BinaryIO | None, **_: Any) -> BinaryIO | None:
    """Find where to put what commands say."""
    return command_output or (None if quiet else sys.stderr.buffer)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Leave by an exception when asked to end, so that commands are ended and folders removed on the way."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run() -> None:
    """Be the command ``tarproc``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["tarproc", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: tarproc ...
    """
    main(command)
