"""What feeders serve, as a loader sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from shoal import settings
from shoal.errors import FeederLostError
from shoal.feed._crew import Crew
from shoal.feed._run import FedRun, Terms
from shoal.feed._ticket import Ticket
from shoal.pipeline.runs import Origin, Position, Run, Setting

__all__ = ["FedOrigin", "Wishes"]


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a trainer wants its batches to come, beside what they are."""

    timeout: float | None = None
    shared: bool = True
    compression: str | None = None
    job: str | None = None
    jobs: int = 1


class FedOrigin(Origin):
    """A plan that feeders run."""

    def __init__(self, crew: Crew, wishes: Wishes, *, skips: bool = False) -> None:
        self.crew, self._wishes, self._skips = crew, wishes, skips
        self._hello = crew.meet()

    @property
    def lanes(self) -> int:
        return int(self._hello["lanes"])

    @property
    def endless(self) -> bool:
        return bool(self._hello["endless"])

    @property
    def part(self) -> tuple[int, int] | None:
        return None if self._hello["part"] is None else tuple(self._hello["part"])

    def skipping(self) -> Origin:
        return FedOrigin(self.crew, self._wishes, skips=True)

    def ways(self, before: Sequence[str] = ()) -> tuple[str, ...]:
        return tuple(self._ask("ways", before=list(before))["ways"]) if before else tuple(self._hello["ways"])

    def description(self, ways: Sequence[str], *, wrap: bool) -> dict[str, Any]:
        return dict(self._ask("describe", ways=list(ways), wrap=wrap, skips=self._skips)["plan"])

    def weights(self) -> list[Any]:
        return list(self._hello["weights"])

    def is_straight(self, ways: Sequence[str]) -> bool:
        return bool(self._hello["straight"]) and not self._skips and tuple(ways) == ("samples",)

    @property
    def counted(self) -> bool:
        return bool(self._hello["counted"])

    def slots(self) -> int:
        return int(self._ask("slots")["slots"])

    def run(self, setting: Setting, position: Position) -> Run:
        plan = self.description(setting.ways, wrap=setting.wrap)
        wishes = self._wishes

        def words(setting: Setting, position: Position, lanes: tuple[int, ...]) -> dict[str, Any]:
            here = replace(position, ways=setting.ways)
            part = replace(setting.part, some=lanes)
            ticket = Ticket(
                plan, part, here, setting.wrap, self._skips, setting.new_weights, setting.worker,
                wishes.compression, wishes.job, wishes.jobs,
            )  # fmt: skip
            return ticket.words()

        terms = Terms(words, self.is_straight(setting.ways), wishes.timeout, wishes.shared)
        return FedRun(self.crew, terms, setting, position)

    def _ask(self, verb: str, **body: Any) -> dict[str, Any]:
        """Ask any feeder; they all serve the same."""
        while True:
            for member in self.crew.alive():
                try:
                    return member.line.ask(verb, settings.current().timeout, **body)
                except FeederLostError as error:
                    self.crew.lose(member, str(error))
            self.crew.meet()
