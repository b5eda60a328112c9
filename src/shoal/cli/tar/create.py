"""``tarcreate``: a tar out of a plan, out of lines, or out of a folder."""

from __future__ import annotations

from collections.abc import Iterable

import click

from shoal.cli._fields import many, printable
from shoal.cli._progress import watched
from shoal.cli._samples import open_output, trusted
from shoal.cli._tool import main, say, tool
from shoal.cli.tar._creating import Created, Files, Keys, folder_samples, plan_samples
from shoal.cli.tar._plan import FORMATS, OpenPlan, Plan, format_of
from shoal.errors import PlanError, SampleError

__all__ = ["command", "run"]

_EXAMPLE = """tarcreate -C images -o small.tar plan.tsv
tarcreate --from-folder images --classes | tarsplit -n 1000 -o train"""


@tool("tarcreate", example=_EXAMPLE)
@click.option("-o", "--output", default="-", help="Write to this file or URL, where it appears when it is complete.")
@click.option("-C", "--directory", default=".", help="Where the files are that a plan names.")
@click.option("-k", "--key", default="{record:09d}", show_default=True, help="Keys of samples that have none.")
@click.option(
    "--format", "form", type=click.Choice(list(FORMATS)), help="Of the plan.  [default: as its name ends, or tsv]"
)
@click.option("-f", "--fields", help="What the columns of --format lines hold.  [default: txt]")
@click.option("-s", "--separator", help="What is between them.  [default: a tab]")
@click.option("--from-folder", metavar="DIR", help="Take all files of a folder instead of a plan.")
@click.option(
    "--classes", is_flag=True, help="Its folders are classes: write their numbers to cls, names to class.txt."
)
@click.option("--anywhere", is_flag=True, help="Files may lie outside of the folder.")
@click.option("-v", "--verbose", is_flag=True, help="Say what the columns are, and how many samples were written.")
@trusted
@click.argument("plan", required=False)
def command(
    plan: str | None,
    output: str,
    directory: str,
    key: str,
    form: str | None,
    fields: str | None,
    separator: str | None,
    from_folder: str | None,
    classes: bool,
    anywhere: bool,
    verbose: bool,
    trust: bool,
) -> None:
    """Write a tar of samples that a plan describes, or that lie in a folder.

    PLAN is a table: TSV, CSV, or a JSON object in each line; - is standard input, which is also what is read without
    one. Its first row names the fields. A column @jpg holds names of files, whose bytes are the field jpg; all files
    are looked at before anything is written. A column __key__ holds the keys. With --format lines each line is a
    sample.

    With --from-folder files of the same name up to the first dot are a sample, and its key is their path.
    """
    if from_folder is not None:
        if plan is not None:
            raise PlanError(f"both the folder {from_folder} and the plan {plan} are given; leave one out")
        left_out: list[str] = []
        samples = folder_samples(Files(from_folder, anywhere), classes=classes, left_out=left_out)
        count = _write(samples, output, trust)
        _say_left_out(left_out)
    else:
        if classes:
            raise PlanError("--classes is about the folders in --from-folder DIR, which is not given")
        with OpenPlan(_plan(plan or "-", form, fields, separator, trust)) as opened:
            if verbose and opened.columns is not None:
                say(f"# {list(opened.columns)}")
            count = _write(plan_samples(opened, Files(directory, anywhere), Keys(key)), output, trust)
    if verbose:
        say(f"# {many(count, 'sample')}")


def _plan(url: str, form: str | None, fields: str | None, separator: str | None, trust: bool) -> Plan:
    form = form or format_of(url)
    if form != "lines" and (fields is not None or separator is not None):
        raise PlanError(f"-f and -s are about --format lines; a plan in {form} names its columns itself")
    names = ("txt",) if fields is None else tuple(fields.split())
    return Plan(url, form, names, "\t" if separator is None else separator, trust)


def _write(samples: Iterable[Created], output: str, trust: bool) -> int:
    with open_output(output, trust=trust) as writer:
        for place, sample in watched(samples, "written"):
            try:
                writer.write(sample)
            except SampleError as error:
                error.add_note(f"from {place}")
                raise
        return writer.count


def _say_left_out(names: list[str]) -> None:
    if names:
        more = ", ..." if len(names) > 3 else ""
        say(printable(f"# {many(len(names), 'file')} in no sample left out: {', '.join(names[:3])}{more}"))


def run() -> None:
    """Be the command ``tarcreate``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["tarcreate", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: tarcreate ...
    """
    main(command)
