"""How values become objects and objects values: by functions that are registered for types, in contexts.

A context begins as a copy of the one around it, so what is registered in it is forgotten with it. Each thread has its
own.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any

import cloudpickle

from shoal.errors import PlanError, StoreError
from shoal.store._ids import ObjectID
from shoal.store._meta import Object, ObjectMeta

if TYPE_CHECKING:
    from shoal.store._base import BaseStore

__all__ = [
    "BuilderContext",
    "ResolverContext",
    "builder_context",
    "context",
    "get_current_builders",
    "get_current_resolvers",
    "resolver_context",
    "trusted",
    "trusting",
]

Builder = Callable[..., Any]
Resolver = Callable[..., Any]


class _Registered:
    """A function with the options that it takes."""

    __slots__ = ("call", "function", "names", "takes_all")

    def __init__(self, function: Callable[..., Any], context_name: str, places: int) -> None:
        self.function = function
        parameters = list(inspect.signature(function).parameters.values())
        own = [each for each in parameters[places:] if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
        named = {each.name for each in own}
        self.takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
        self.call = context_name in named or self.takes_all
        """Whether it wants to have the context, to build or resolve what is inside."""
        self.names = named - {context_name}

    def check(self, what: str, options: Mapping[str, Any]) -> None:
        unknown = [name for name in options if name not in self.names and not self.takes_all]
        if unknown:
            known = f"; it takes {', '.join(sorted(self.names))}" if self.names else ", nor any other"
            raise PlanError(f"{what} takes no option {unknown[0]!r}{known}")


class BuilderContext:
    """Functions that make descriptions of values, by type.

    >>> from shoal.store import connect
    >>> import fractions, tempfile
    >>> def build(store, value):
    ...     return ObjectMeta("doc::Fraction", {"top": value.numerator, "bottom": value.denominator})
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> with builder_context({fractions.Fraction: build}):
    ...     store.get_meta(store.put(fractions.Fraction(1, 3)))["bottom"]
    3
    """

    def __init__(self, builders: Mapping[type | str, Builder | str] | None = None) -> None:
        self._builders: dict[type | str, Builder | str] = {}
        self._known: dict[type, _Registered | None] = {}
        for kind, function in (builders or {}).items():
            self.register(kind, function)

    def register(self, kind: type | str, function: Builder | str) -> None:
        """Register ``function(store, value, builder=..., **options)`` for a type and those derived from it.

        A type of a library that need not be there is named: ``"torch.Tensor"``; so may be the function, which is then
        loaded when it is needed: ``"package.module:function"``.
        """
        self._builders[kind] = function
        self._known.clear()

    def copy(self) -> BuilderContext:
        """Copy what is registered."""
        made = BuilderContext()
        made._builders = dict(self._builders)
        return made

    def run(self, store: BaseStore, value: Any, **options: Any) -> ObjectMeta:
        """Describe a value; an id stands for an object that is there already."""
        kind = type(value)
        found = self._known[kind] if kind in self._known else self._known.setdefault(kind, self._find(kind))
        if found is None and trusted():
            found = _PICKLES
        if found is None:
            text = f"there is no builder for {type(value).__module__}.{type(value).__qualname__}"
            raise StoreError(f"{text}; register one, or put it with trust=True, which pickles it")
        found.check(f"putting a {type(value).__qualname__}", options)
        made = found.function(store, value, **({"builder": self} if found.call else {}), **options)
        return _described(store, made)

    def _find(self, kind: type) -> _Registered | None:
        for base in kind.__mro__:
            found = self._builders.get(base) or self._builders.get(f"{base.__module__}.{base.__qualname__}")
            if found is not None:
                return _Registered(_loaded(found), "builder", 2)
        return None

    __call__ = run


class ResolverContext:
    """Functions that make values of objects, by the beginning of the name of their type.

    >>> from shoal.store import connect
    >>> import tempfile
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> made = store.create(ObjectMeta("doc::Fraction", {"top": 1, "bottom": 3}))
    >>> with resolver_context({"doc::Fraction": lambda obj: f"{obj.meta['top']}/{obj.meta['bottom']}"}):
    ...     store.get(made)
    '1/3'
    """

    def __init__(
        self, resolvers: Mapping[str, Resolver | str] | None = None, parent: ResolverContext | None = None
    ) -> None:
        self._resolvers: dict[str, Resolver | str] = {}
        self._known: dict[str, _Registered | None] = {}
        self.parent_context = parent
        """The context around this one."""
        for prefix, function in (resolvers or {}).items():
            self.register(prefix, function)

    def register(self, prefix: str, function: Resolver | str) -> None:
        """Register ``function(object, resolver=..., **options)`` for types; of several the longest prefix wins."""
        self._resolvers[prefix] = function
        self._known.clear()

    def copy(self) -> ResolverContext:
        """Copy what is registered, as a context inside this one."""
        made = ResolverContext(parent=self)
        made._resolvers = dict(self._resolvers)
        return made

    def run(self, obj: Any, **options: Any) -> Any:
        """Make a value of an object; one of a type that nobody knows is given as it is."""
        if not isinstance(obj, Object):
            return obj.view if hasattr(obj, "view") else obj
        name = obj.typename
        found = self._known[name] if name in self._known else self._known.setdefault(name, self._find(name))
        if found is None:
            if options:
                raise PlanError(f"there is no resolver for {obj.typename} that could take {next(iter(options))!r}")
            return obj
        found.check(f"getting a {obj.typename}", options)
        return found.function(obj, **({"resolver": self} if found.call else {}), **options)

    def _find(self, typename: str) -> _Registered | None:
        for end in range(len(typename), -1, -1):
            if (found := self._resolvers.get(typename[:end])) is not None:
                return _Registered(_loaded(found), "resolver", 1)
        return None

    __call__ = run


def _pickled(store: BaseStore, value: Any) -> ObjectMeta:
    buffers: list[pickle.PickleBuffer] = []
    meta = ObjectMeta("vineyard::PickleBuffer")
    meta.add_member("buffer_", cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append))
    meta["buffers_-size"] = len(buffers)
    for number, buffer in enumerate(buffers):
        meta.add_member(f"buffers_-{number}", buffer.raw())
    return meta


_PICKLES = _Registered(_pickled, "builder", 2)


_BUILDERS: ContextVar[BuilderContext | None] = ContextVar("shoal builders", default=None)
_RESOLVERS: ContextVar[ResolverContext | None] = ContextVar("shoal resolvers", default=None)
_TRUSTED: ContextVar[bool] = ContextVar("shoal trust", default=False)


def trusted() -> bool:
    """Tell whether the caller allows what runs code: pickles.

    >>> trusted()
    False
    >>> with trusting(True):
    ...     trusted()
    True
    """
    return _TRUSTED.get()


@contextmanager
def trusting(trust: bool) -> Iterator[None]:
    """Allow what runs code, or do not, for a while."""
    token = _TRUSTED.set(trust)
    try:
        yield
    finally:
        _TRUSTED.reset(token)


def get_current_builders() -> BuilderContext:
    """Give the context in which values become objects.

    >>> with builder_context() as mine:
    ...     get_current_builders() is mine
    True
    """
    return _BUILDERS.get() or _defaults()[0]


def get_current_resolvers() -> ResolverContext:
    """Give the context in which objects become values.

    >>> with resolver_context() as mine:
    ...     get_current_resolvers() is mine
    True
    """
    return _RESOLVERS.get() or _defaults()[1]


@contextmanager
def builder_context(
    builders: Mapping[type | str, Builder | str] | None = None, base: BuilderContext | None = None
) -> Iterator[BuilderContext]:
    """Register builders for a while.

    >>> with builder_context({complex: "some.module:build"}) as builders:
    ...     isinstance(builders, BuilderContext)
    True
    """
    made = (base or get_current_builders()).copy()
    for kind, function in (builders or {}).items():
        made.register(kind, function)
    token = _BUILDERS.set(made)
    try:
        yield made
    finally:
        _BUILDERS.reset(token)


@contextmanager
def resolver_context(
    resolvers: Mapping[str, Resolver | str] | None = None, base: ResolverContext | None = None
) -> Iterator[ResolverContext]:
    """Register resolvers for a while.

    >>> before = get_current_resolvers()
    >>> with resolver_context() as resolvers:
    ...     resolvers.register("doc::Point", lambda obj: (obj.meta["x"], obj.meta["y"]))
    >>> get_current_resolvers() is before
    True
    """
    made = (base or get_current_resolvers()).copy()
    for prefix, function in (resolvers or {}).items():
        made.register(prefix, function)
    token = _RESOLVERS.set(made)
    try:
        yield made
    finally:
        _RESOLVERS.reset(token)


@contextmanager
def context() -> Iterator[tuple[BuilderContext, ResolverContext]]:
    """Register builders and resolvers for a while.

    >>> with context() as (builders, resolvers):
    ...     get_current_builders() is builders, get_current_resolvers() is resolvers
    (True, True)
    """
    with builder_context() as builders, resolver_context() as resolvers:
        yield builders, resolvers


_DEFAULTS: list[tuple[BuilderContext, ResolverContext]] = []


def _defaults() -> tuple[BuilderContext, ResolverContext]:
    if not _DEFAULTS:
        from shoal.store.types import default_builders, default_resolvers

        _DEFAULTS.append((default_builders(), default_resolvers()))
    return _DEFAULTS[0]


def _loaded(function: Callable[..., Any] | str) -> Callable[..., Any]:
    if not isinstance(function, str):
        return function
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def _described(store: BaseStore, made: Any) -> ObjectMeta:
    """Take what a builder gives: a description, an object, or an id."""
    if isinstance(made, ObjectMeta):
        return made
    if isinstance(made, Object):
        return made.meta
    if isinstance(made, ObjectID):
        return store.get_meta(made)
    raise StoreError(f"a builder gave {made!r}, which is neither a description nor an object nor an id")
