"""What all commands have in common: how they begin, how they end, and what they say when something is wrong.

Samples go to standard output and words to standard error. What a user did wrong ends with 2, what went wrong with 1, a
reader that has gone with 141 and Ctrl-C with 130, as a shell has it; none of them shows a traceback.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import click

from shoal import settings
from shoal.cli._fields import printable
from shoal.errors import MissingExtraError, PlanError, ShoalError

__all__ = ["Tool", "Tools", "main", "say", "tool"]

#: Exit codes, beside 0.
FAILED, MISUSED, INTERRUPTED, NO_READER = 1, 2, 130, 141


class Tool(click.Command):
    """A command that shows an example of its use."""

    def __init__(self, *arguments: Any, example: str = "", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example as it is typed."""
        if self.example:
            with formatter.section("Example"):
                formatter.write("".join(f"  {line}\n" for line in self.example.strip().splitlines()))


class Tools(click.Group):
    """Commands by name, each imported when it is asked for."""

    def __init__(self, *arguments: Any, homes: Mapping[str, str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._homes = homes
        """Name -> "module:attribute"."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name them in the order in which they are listed."""
        return list(self._homes)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one."""
        home = self._homes.get(cmd_name)
        if home is None:
            return None
        module, _, attribute = home.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


def tool(name: str, *, example: str, **options: Any) -> Callable[[Callable[..., Any]], Tool]:
    """Make a command of a function; its docstring is the help, and ``example`` a line that works."""
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

    def made(function: Callable[..., Any]) -> Tool:
        command = click.command(name, cls=Tool, example=example, context_settings=settings, **options)(function)
        assert isinstance(command, Tool)
        return command

    return made


def main(command: click.Command, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command to its end, and leave with its exit code."""
    name = command.name or "shoal"
    program = _program(name)
    if settings.variable(f"_{program.replace('-', '_').upper()}_COMPLETE"):
        command.main(arguments, prog_name=program)  # a shell asks what could come next
    try:
        # Not by click's own main, to which a reader that has gone is a failure like others.
        with command.make_context(program, list(sys.argv[1:] if arguments is None else arguments)) as context:
            command.invoke(context)
        sys.stdout.flush()
        sys.exit(0)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.UsageError as error:
        error.show()
        sys.exit(MISUSED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.exceptions.Abort):
        _leave(INTERRUPTED)
    except BrokenPipeError:
        _leave(NO_READER)
    except (PlanError, MissingExtraError) as error:
        say(f"{name}: {error}")
        _leave(MISUSED)
    except (ShoalError, OSError) as error:
        if isinstance(error.__cause__, BrokenPipeError):
            _leave(NO_READER)
        say(f"{name}: {error}")
        for note in getattr(error, "__notes__", ()):
            say(f"  {note.splitlines()[0]}")
        _leave(FAILED)


def say(text: str) -> None:
    """Write a line to standard error; what is in names of files and samples cannot steer a terminal."""
    click.echo("\n".join(map(printable, text.split("\n"))), err=True)


def _program(name: str) -> str:
    """Name the command as it was called: alone, or as ``shoal tar cat``."""
    called = os.path.basename(sys.argv[0])
    return called if called and not called.endswith(".py") else name


def _leave(code: int) -> NoReturn:
    """End without another word: what is left in the buffer of standard output has nobody to read it."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    sys.exit(code)
