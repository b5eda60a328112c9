"""Every exception Shoal raises, in one tree.

ShoalError
├── SettingsError            (ValueError)           an environment variable or option makes no sense
├── MissingExtraError        (ImportError)          an optional library is not installed
├── TrustError               (ValueError)           unsafe data or command without ``trust=True``
├── PlanError                (ValueError)           a dataset, stage or loader is put together wrongly
├── StateError               (ValueError)           a loader cannot go on from the state it was given
├── UrlError                 (OSError)              bytes could not be moved from or to a URL
│   ├── UrlNotFoundError     (FileNotFoundError)    there is nothing at the URL
│   ├── UrlChangedError                             the object changed while it was being read
│   └── CacheError                                  the shard cache could not keep a shard
├── ShardError               (tarfile.ReadError)    a shard's bytes are not what its format says
│   ├── TruncatedShardError  (EOFError)             the bytes end too early
│   ├── CorruptShardError                           a checksum, number or record is wrong
│   └── UnsupportedMemberError                      a kind of tar member Shoal does not read
├── SampleError              (ValueError)           one sample, or one field of it, is wrong
│   ├── DuplicateFieldError                         two members of a sample have the same field
│   ├── MissingFieldError    (KeyError)             a wanted field is not in the sample
│   ├── DecodeError                                 a field's bytes are not what its extension says
│   ├── EncodeError                                 a value cannot be written under its extension
│   └── ErrorBudgetError                            more samples failed than a run may skip
├── SchemaError              (ValueError)           files of one dataset differ in columns or types
├── IndexFileError           (ValueError)           an index file cannot be used
├── StoreError               (RuntimeError)         something is wrong with an object store, or how it is used
│   ├── ObjectNotFoundError  (LookupError)          there is no such object, or name
│   ├── CorruptObjectError   (ValueError)           the bytes of an object are not what they should be
│   ├── StoreFullError       (MemoryError)          there is no room for an object
│   └── StoreUnreachableError (ConnectionError)     the store of another host does not answer
├── WorkerDiedError          (RuntimeError)         a worker process died while it worked on a block
├── WorkerHangError          (TimeoutError)         workers do not move any more
├── WorkerEnvironmentError   (RuntimeError)         a Python environment for workers is missing or wrong
└── GuestError               (RuntimeError)         a call in another Python environment failed
    └── GuestTimeoutError    (TimeoutError)         it took longer than it may

A text says what happened, what was seen and what to do. Shard and sample errors also carry the place as attributes
(``shard``, ``offset``, ``member``, ``key``, ``field``), so that a program can act on it. All of them can be pickled.

Beside the tree stands `StallWarning`: a run says that it waits, and for what.
"""

from __future__ import annotations

import signal
import tarfile

__all__ = [
    "CacheError",
    "CorruptObjectError",
    "CorruptShardError",
    "DecodeError",
    "DuplicateFieldError",
    "EncodeError",
    "ErrorBudgetError",
    "GuestError",
    "GuestTimeoutError",
    "IndexFileError",
    "MissingExtraError",
    "MissingFieldError",
    "ObjectNotFoundError",
    "PlanError",
    "SampleError",
    "SchemaError",
    "SettingsError",
    "ShardError",
    "ShoalError",
    "StallWarning",
    "StateError",
    "StoreError",
    "StoreFullError",
    "StoreUnreachableError",
    "TruncatedShardError",
    "TrustError",
    "UnsupportedMemberError",
    "UrlChangedError",
    "UrlError",
    "UrlNotFoundError",
    "WorkerDiedError",
    "WorkerEnvironmentError",
    "WorkerHangError",
]


class ShoalError(Exception):
    """Base of everything Shoal raises on purpose."""


class SettingsError(ShoalError, ValueError):
    """An environment variable or an option has a value that makes no sense."""


class MissingExtraError(ShoalError, ImportError):
    """An optional library is needed and not installed; the text says which pip command brings it."""


class TrustError(ShoalError, ValueError):
    """Something that can run code (pickle, ``pipe:``) was met without ``trust=True``."""


class PlanError(ShoalError, ValueError):
    """A dataset, stage or loader is put together in a way that cannot work."""


class StateError(ShoalError, ValueError):
    """A loader was given a state that it cannot go on from: damaged, incomplete, or of another plan."""


class UrlError(ShoalError, OSError):
    """Bytes could not be read from or written to a URL."""

    def __init__(self, message: str, *, url: str | None = None) -> None:
        super().__init__(message)
        self.url = url

    def __str__(self) -> str:
        return str(self.args[0])


class UrlNotFoundError(UrlError, FileNotFoundError):
    """There is nothing at the URL, so trying again is pointless."""


class UrlChangedError(UrlError):
    """The object behind the URL changed between two parts of one read."""


class CacheError(UrlError):
    """The shard cache could not keep a shard (disk full, shard larger than the cache)."""


class ShardError(ShoalError, tarfile.ReadError):
    """The bytes of a shard are not what its format says."""

    def __init__(
        self, message: str, *, shard: str | None = None, offset: int | None = None, member: str | None = None
    ) -> None:
        super().__init__(message)
        self.shard = shard
        self.offset = offset
        self.member = member

    def __str__(self) -> str:
        place = [f"shard {self.shard}"] if self.shard is not None else []
        if self.offset is not None:
            place.append(f"offset {self.offset}")
        if self.member is not None:
            place.append(f"member {self.member!r}")
        return f"{', '.join(place)}: {self.args[0]}" if place else str(self.args[0])


class TruncatedShardError(ShardError, EOFError):
    """The bytes of a shard end before its contents do."""


class CorruptShardError(ShardError):
    """A checksum, a number or an extended header of a shard is wrong."""


class UnsupportedMemberError(ShardError):
    """A tar member of a kind that Shoal does not read (sparse files, multi-volume parts)."""


class SampleError(ShoalError, ValueError):
    """One sample, or one field of it, is wrong."""

    def __init__(
        self, message: str, *, key: str | None = None, field: str | None = None, shard: str | None = None
    ) -> None:
        super().__init__(message)
        self.key = key
        self.field = field
        self.shard = shard

    def __str__(self) -> str:
        place = [f"shard {self.shard}"] if self.shard is not None else []
        if self.key is not None:
            place.append(f"sample {self.key!r}")
        if self.field is not None:
            place.append(f"field {self.field!r}")
        return f"{', '.join(place)}: {self.args[0]}" if place else str(self.args[0])


class DuplicateFieldError(SampleError):
    """Two consecutive members of one sample have the same field name."""


class MissingFieldError(SampleError, KeyError):
    """A field that was asked for is not in the sample."""


class DecodeError(SampleError):
    """The bytes of a field are not what its extension says."""


class EncodeError(SampleError):
    """A value cannot be written under its extension."""


class ErrorBudgetError(SampleError):
    """More samples failed than the run was allowed to skip; the text names the last, the ledger has all."""


class SchemaError(ShoalError, ValueError):
    """Files that are one dataset differ in their columns, or in the types of these."""


class IndexFileError(ShoalError, ValueError):
    """An index file is of another version, damaged, or does not belong to its shard."""


class StallWarning(RuntimeWarning):
    """Nothing was delivered for a while; the text says which stage and worker has what."""


class StoreError(ShoalError, RuntimeError):
    """Something is wrong with an object store, or with how it is used."""


class ObjectNotFoundError(StoreError, LookupError):
    """There is no object of this id, or none of this name."""


class CorruptObjectError(StoreError, ValueError):
    """The bytes of an object are not what they should be."""


class StoreFullError(StoreError, MemoryError):
    """There is no room for an object; the text says what holds the memory."""


class StoreUnreachableError(StoreError, ConnectionError):
    """The store of another host does not answer."""


class WorkerDiedError(ShoalError, RuntimeError):
    """A worker process died while it worked on a block: killed, crashed in a library, or left by its own code."""

    def __init__(self, message: str, *, pid: int | None = None, exitcode: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid
        self.exitcode = exitcode

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended it, if it was one."""
        if self.exitcode is None or self.exitcode >= 0:
            return None
        known = {int(each): each.name for each in signal.Signals}
        return known.get(-self.exitcode, f"signal {-self.exitcode}")


class WorkerHangError(ShoalError, TimeoutError):
    """Workers do not move any more; the text says where each of them is."""


class WorkerEnvironmentError(ShoalError, RuntimeError):
    """A Python environment for workers is missing, broken, too old, or could not be built."""


class GuestError(ShoalError, RuntimeError):
    """A call in another Python environment failed; its own exception stays there, and is told as text."""

    def __init__(self, message: str, *, kind: str | None = None, traceback: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        """The class of the exception over there, such as ``ValueError`` or ``package.SomeError``."""
        self.traceback = traceback
        """Its traceback, as text."""


class GuestTimeoutError(GuestError, TimeoutError):
    """A call in another Python environment took longer than it may; the process was ended."""
