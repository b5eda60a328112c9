"""One lane of a plan: nodes that pull samples from one another.

Every node can tell where it is as a *mark*, plain numbers in tuples, and go on from one. Samples that a node holds are
in its mark as references: a reference says how the sample is made again, and only the leaves know what it means.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from shoal.order import Mixing
from shoal.pipeline._feed import Channel, Feed, Group
from shoal.pipeline._leaves import Cursor, Leaf
from shoal.pipeline._segments import Segment, Ticket
from shoal.pipeline._storage import merged_id
from shoal.pipeline.gather import Gathering, Piece

__all__ = [
    "Book",
    "GatherNode",
    "LeafNode",
    "Mark",
    "MixNode",
    "Node",
    "Place",
    "SegmentNode",
    "SpreadNode",
    "TakeNode",
    "Trail",
]

Mark: TypeAlias = Sequence[Any]
#: A leaf, a lane and a cursor: an input that was drawn before.
Place: TypeAlias = tuple[int, int, Cursor]
#: Inputs that were made once more.
Book: TypeAlias = Mapping[Place, Group]

_MANY = 10_000


class Node(ABC):
    """A stage of one lane."""

    @abstractmethod
    def ask(self, count: int) -> None:
        """Announce that so many more samples will be pulled."""

    @abstractmethod
    def next(self) -> Piece | None:
        """Give the next sample of the lane; None is its end."""

    @abstractmethod
    def mark(self) -> Mark:
        """Say where the lane is."""

    @abstractmethod
    def load(self, mark: Mark, book: Book) -> None:
        """Go on from a mark."""

    @abstractmethod
    def cursors(self, mark: Mark) -> Iterator[tuple[int, Cursor]]:
        """Tell where a mark says that each leaf goes on."""

    def held(self, mark: Mark) -> Iterator[Place]:
        """List the inputs that a mark refers to."""
        return iter(())

    @abstractmethod
    def places(self, ref: Any) -> Iterator[Place]:
        """List the inputs that a reference needs."""

    @abstractmethod
    def rebuild(self, ref: Any, book: Book) -> Piece:
        """Make the sample of a reference again."""


class Trail:
    """The input that a lane drew last: leaf, cursor and id; and how long it has been searching for one to use."""

    __slots__ = ("barren", "last")

    def __init__(self) -> None:
        self.last: tuple[int, Cursor, int] | None = None
        self.barren: dict[int, tuple[int, int]] = {}
        """For leaves of which nothing was left lately: since which pass, and of how many inputs."""


class LeafNode(Node):
    """The samples of a leaf, after its leading stages."""

    def __init__(self, feed: Feed, leaf: Leaf, lane: int, trail: Trail) -> None:
        self._feed, self._leaf, self._lane, self._trail = feed, leaf, lane, trail
        self._channel = Channel(leaf.number, lane)
        self._group: Group | None = None
        self._taken = 0
        self._after: Cursor = leaf.start

    def ask(self, count: int) -> None:
        self._feed.ask(self._channel, count)

    def next(self) -> Piece | None:
        while self._group is None or self._taken >= len(self._group.outputs):
            group = self._feed.take(self._channel)
            if group is None or self._is_barren(group):
                return None
            self._group, self._after = group, group.draw.after
            self._trail.last = (self._leaf.number, group.draw.cursor, group.draw.id)
            self._taken, taken = 0, self._taken
            if taken and group.outputs:  # gone on in the middle of what became of an input
                self._taken = taken
        self._taken += 1
        payload = self._group.outputs[self._taken - 1]
        piece = self._piece(payload, (*self._group.draw.cursor, self._taken - 1))
        if self._taken == len(self._group.outputs):
            self._group, self._taken = None, 0
        return piece

    def mark(self) -> Mark:
        cursor = self._after if self._group is None else self._group.draw.cursor
        return (*cursor, self._taken)

    def load(self, mark: Mark, book: Book) -> None:
        *after, self._taken = mark
        self._after = tuple(after)

    def cursors(self, mark: Mark) -> Iterator[tuple[int, Cursor]]:
        yield self._leaf.number, tuple(mark[:-1])

    def places(self, ref: Any) -> Iterator[Place]:
        yield self._leaf.number, self._lane, tuple(ref[:-1])

    def rebuild(self, ref: Any, book: Book) -> Piece:
        group = book[self._leaf.number, self._lane, tuple(ref[:-1])]
        return self._piece(group.outputs[ref[-1]], tuple(ref))

    def _is_barren(self, group: Group) -> bool:
        """Tell whether nothing was left of so many passes that another one would be no better.

        A lane sees only a part of each pass. Where nothing is shuffled it has seen all that it ever will after as many
        passes as there are lanes; of a large source, many inputs will do.
        """
        barren = self._trail.barren
        if _bears(group.outputs):
            barren.clear()
            return False
        first, seen = barren.get(self._leaf.number, (group.draw.number, 0))
        barren[self._leaf.number] = first, seen + 1
        passes = group.draw.number - first
        return passes > 4 * self._leaf.walk.lanes or (passes > 1 and seen > _MANY)

    def _piece(self, payload: Any, ref: tuple[int, ...]) -> Piece:
        # Where a mixture lies between stages, the payload is a list; a node further up spreads it.
        return Piece(payload, ref) if isinstance(payload, list) else Piece(payload[0], ref, payload[1])


def _bears(outputs: list[Any]) -> bool:
    return any(_bears(output) if isinstance(output, list) else True for output in outputs)


class MixNode(Node):
    """One of several lanes at a time."""

    def __init__(self, children: Sequence[Node], mixing: Mixing, *, drop: bool, new_weights: bool) -> None:
        self._children, self._drop, self._new_weights = children, drop, new_weights
        self._mixing = mixing
        self._ahead = self._mixing.copy()
        self._planned: deque[int] = deque()

    def ask(self, count: int) -> None:
        for _ in range(count):
            chosen = self._ahead.draw()
            if chosen is None:
                return
            self._planned.append(chosen)
            self._children[chosen].ask(1)

    def next(self) -> Piece | None:
        while True:
            if not self._planned:
                self.ask(1)
            if not self._planned:
                return None
            chosen = self._planned.popleft()
            piece = self._children[chosen].next()
            if piece is not None:
                self._mixing.count(chosen)
                return piece._replace(ref=(chosen, *piece.ref))
            if not self._drop:
                self._planned.appendleft(chosen)  # asked again, the lane is still at its end
                return None
            self._mixing.drop(chosen)
            self._ahead, planned = self._mixing.copy(), len(self._planned)
            self._planned.clear()
            self.ask(planned)

    def mark(self) -> Mark:
        return self._mixing.mark(), tuple(child.mark() for child in self._children)

    def load(self, mark: Mark, book: Book) -> None:
        mixing, marks = mark
        self._mixing.load(mixing, new_weights=self._new_weights)
        self._ahead = self._mixing.copy()
        for child, each in zip(self._children, marks, strict=True):
            child.load(each, book)

    def cursors(self, mark: Mark) -> Iterator[tuple[int, Cursor]]:
        for child, each in zip(self._children, mark[1], strict=True):
            yield from child.cursors(each)

    def held(self, mark: Mark) -> Iterator[Place]:
        for child, each in zip(self._children, mark[1], strict=True):
            yield from child.held(each)

    def places(self, ref: Any) -> Iterator[Place]:
        child: Node = self._children[ref[0]]
        return child.places(ref[1:])

    def rebuild(self, ref: Any, book: Book) -> Piece:
        child: Node = self._children[ref[0]]
        return child.rebuild(ref[1:], book)._replace(ref=tuple(ref))


class _Holding(Node):
    """A node over another that holds the rest of what became of one sample."""

    def __init__(self, child: Node) -> None:
        self._child = child
        self._current: Piece | None = None
        self._outputs: list[tuple[Any, int]] = []
        self._taken = 0

    @abstractmethod
    def _spread(self, piece: Piece) -> list[tuple[Any, int]]:
        """Say what becomes of a sample."""

    def ask(self, count: int) -> None:
        self._child.ask(count)

    def next(self) -> Piece | None:
        while self._current is None or self._taken >= len(self._outputs):
            pulled = self._pull()
            if pulled is None:
                self._current = None
                return None
            (self._current, self._outputs), self._taken = pulled, 0
            if not self._outputs:
                self._child.ask(1)
        payload = self._outputs[self._taken]
        self._taken += 1
        return self._made(payload, (*self._current.ref, self._taken - 1))

    def mark(self) -> Mark:
        rest = self._current is not None and self._taken < len(self._outputs)
        return self._position(), (self._current.ref, self._taken) if rest and self._current is not None else ()

    def _pull(self) -> tuple[Piece, list[tuple[Any, int]]] | None:
        """Give the next sample of the child and what becomes of it."""
        piece = self._child.next()
        return None if piece is None else (piece, self._spread(piece))

    def _position(self) -> Mark:
        """Say where the child is, as far as this node has come."""
        return self._child.mark()

    def load(self, mark: Mark, book: Book) -> None:
        below, here = mark
        self._child.load(below, book)
        if here:
            self._current = self._child.rebuild(here[0], book)
            self._outputs, self._taken = self._spread(self._current), here[1]

    def cursors(self, mark: Mark) -> Iterator[tuple[int, Cursor]]:
        return self._child.cursors(mark[0])

    def held(self, mark: Mark) -> Iterator[Place]:
        yield from self._child.held(mark[0])
        if mark[1]:
            yield from self._child.places(mark[1][0])

    def places(self, ref: Any) -> Iterator[Place]:
        return self._child.places(ref[:-1])

    def rebuild(self, ref: Any, book: Book) -> Piece:
        return self._made(self._spread(self._child.rebuild(ref[:-1], book))[ref[-1]], tuple(ref))

    def _made(self, payload: Any, ref: tuple[Any, ...]) -> Piece:
        return Piece(payload, ref) if isinstance(payload, list) else Piece(payload[0], ref, payload[1])


class SpreadNode(_Holding):
    """What the stages behind a mixture made of a sample, ahead of time."""

    def _spread(self, piece: Piece) -> list[tuple[Any, int]]:
        outputs: Any = piece.sample
        return outputs  # type: ignore[no-any-return]


class SegmentNode(_Holding):
    """Stages that look at one sample at a time, behind one that acts inside the lane.

    Where they have workers, samples are sent to them ahead of time. The lane is where it was before these were pulled.
    """

    def __init__(self, child: Node, segment: Segment) -> None:
        super().__init__(child)
        self._segment = segment
        self._begun: deque[tuple[Piece, Ticket, Mark]] = deque()
        self._below: Mark | None = None
        self._asked = self._ended = False

    def ask(self, count: int) -> None:
        super().ask(count if self._asked else count + self._segment.ahead)
        self._asked = True

    def load(self, mark: Mark, book: Book) -> None:
        super().load(mark, book)
        self._begun.clear()
        self._below, self._ended = None, False

    def _pull(self) -> tuple[Piece, list[tuple[Any, int]]] | None:
        if not self._segment.ahead:
            return super()._pull()
        if self._below is None:
            self._below = self._child.mark()
        while len(self._begun) <= self._segment.ahead and not self._ended:
            piece = self._child.next()
            self._ended = piece is None
            if piece is not None:
                self._begun.append((piece, self._segment.begin(piece), self._child.mark()))
        if not self._begun:
            return None
        piece, ticket, self._below = self._begun.popleft()
        return piece, self._segment.finish(ticket)

    def _position(self) -> Mark:
        return self._child.mark() if self._below is None else self._below

    def _spread(self, piece: Piece) -> list[tuple[Any, int]]:
        return self._segment.finish(self._segment.begin(piece))


class TakeNode(Node):
    """The first samples of a lane."""

    def __init__(self, child: Node, quota: int) -> None:
        self._child, self._left = child, quota

    def ask(self, count: int) -> None:
        self._child.ask(min(count, self._left))

    def next(self) -> Piece | None:
        piece = self._child.next() if self._left else None
        self._left -= piece is not None
        return piece

    def mark(self) -> Mark:
        return self._child.mark(), self._left

    def load(self, mark: Mark, book: Book) -> None:
        below, self._left = mark
        self._child.load(below, book)

    def cursors(self, mark: Mark) -> Iterator[tuple[int, Cursor]]:
        return self._child.cursors(mark[0])

    def held(self, mark: Mark) -> Iterator[Place]:
        return self._child.held(mark[0])

    def places(self, ref: Any) -> Iterator[Place]:
        return self._child.places(ref)

    def rebuild(self, ref: Any, book: Book) -> Piece:
        return self._child.rebuild(ref, book)


class GatherNode(Node):
    """A stage that collects samples in bins."""

    def __init__(self, child: Node, gathering: Gathering) -> None:
        self._child, self._gathering = child, gathering
        self._full: deque[list[Piece]] = deque()
        self._ended = False
        self._pulled = self._given = 1

    def ask(self, count: int) -> None:
        self._child.ask(-(-count * self._pulled // self._given))

    def next(self) -> Piece | None:
        while not self._full and not self._ended:
            piece = self._child.next()
            if piece is None:
                self._full.extend(self._gathering.end())
                self._ended = True
            else:
                self._pulled += 1
                self._full.extend(self._gathering.add(piece))
        if not self._full:
            return None
        self._given += 1
        return self._built(self._full.popleft())

    def mark(self) -> Mark:
        bins = tuple(map(_refs, self._gathering.bins))
        return self._child.mark(), bins, tuple(map(_refs, self._full)), int(self._ended)

    def load(self, mark: Mark, book: Book) -> None:
        below, bins, full, ended = mark
        self._child.load(below, book)
        self._gathering.restore([self._pieces(refs, book) for refs in bins])
        self._full = deque(self._pieces(refs, book) for refs in full)
        self._ended = bool(ended)

    def cursors(self, mark: Mark) -> Iterator[tuple[int, Cursor]]:
        return self._child.cursors(mark[0])

    def held(self, mark: Mark) -> Iterator[Place]:
        yield from self._child.held(mark[0])
        for refs in (*mark[1], *mark[2]):
            yield from self.places(refs)

    def places(self, ref: Any) -> Iterator[Place]:
        for part, _, _ in ref:
            yield from self._child.places(part)

    def rebuild(self, ref: Any, book: Book) -> Piece:
        return self._built(self._pieces(ref, book))

    def _built(self, pieces: list[Piece]) -> Piece:
        return Piece(self._gathering.build(pieces), _refs(pieces), merged_id(pieces))

    def _pieces(self, refs: Any, book: Book) -> list[Piece]:
        return [
            self._child.rebuild(ref, book)._replace(start=start, stop=None if stop < 0 else stop)
            for ref, start, stop in refs
        ]


def _refs(pieces: Sequence[Piece]) -> tuple[Any, ...]:
    return tuple((piece.ref, piece.start, -1 if piece.stop is None else piece.stop) for piece in pieces)
