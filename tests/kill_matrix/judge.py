"""Whether what came is what had to come: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Delivery", "Reference", "complaints"]


@dataclass(frozen=True)
class Reference:
    """What an undisturbed run gave: the rows of each step, in their order, and the digest of the order."""

    steps: tuple[tuple[str, ...], ...]
    digest: str


@dataclass(frozen=True)
class Delivery:
    """What one rank of one attempt noted: rows by step."""

    name: str
    attempt: str
    size: int
    steps: Mapping[int, Sequence[str]]


def complaints(reference: Reference, deliveries: Sequence[Delivery], digest: str) -> list[str]:
    """Say what is wrong: every global batch has to be there, and no rank may ever have been given anything else."""
    found, whole = list[str](), set[int]()
    for attempt in sorted({delivery.attempt for delivery in deliveries}):
        ranks = [delivery for delivery in deliveries if delivery.attempt == attempt]
        number = min((min(rank.steps, default=1) for rank in ranks), default=1)
        for step in sorted({step for rank in ranks for step in rank.steps}):
            there = [rank for rank in ranks if step in rank.steps]
            complete = len(there) == ranks[0].size
            if complete and not any(rank.steps[step] for rank in there):
                continue  # one that has nothing but padding; a rank alone passes it over
            found += [
                f"{rank.name}: batch {number} has other rows, or in another order"
                for rank in there
                if not _is_part(rank.steps[step], _rows(reference, number))
            ]
            if complete:  # else one of them was gone before
                whole.add(number)
                if Counter(row for rank in there for row in rank.steps[step]) != Counter(_rows(reference, number)):
                    found.append(f"{attempt}: the ranks' parts of batch {number} are not the batch")
            number += 1
    missing = [number for number, rows in enumerate(reference.steps, 1) if rows and number not in whole]
    found += [f"batches {missing} never came"] * bool(missing)
    if digest != reference.digest:
        found.append(f"the digest of the order is {digest} and not {reference.digest}")
    return found


def _rows(reference: Reference, step: int) -> Sequence[str]:
    return reference.steps[step - 1] if step <= len(reference.steps) else ()


def _is_part(some: Sequence[str], whole: Sequence[str]) -> bool:
    """Tell whether some rows are among others, in the same order."""
    left = iter(whole)
    return all(row in left for row in some)
