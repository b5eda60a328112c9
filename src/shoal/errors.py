"""Every exception Shoal raises, in one tree.

::

    ShoalError
    ├── SettingsError            (ValueError)           an environment variable or option makes no sense
    ├── MissingExtraError        (ImportError)          an optional library is not installed
    ├── TrustError               (ValueError)           unsafe data or command without ``trust=True``
    ├── MissingDeviceError       (LookupError)          a device that a stage asks for is not there
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
    │   ├── TensorcomError       (AssertionError)       something that Tensorcom asserts does not hold
    │   └── ErrorBudgetError                            more samples failed than a run may skip
    ├── SchemaError              (ValueError)           files of one dataset differ in columns or types
    ├── IndexFileError           (ValueError)           an index file cannot be used
    ├── StoreError               (RuntimeError)         something is wrong with an object store, or how it is used
    │   ├── ObjectNotFoundError  (LookupError)          there is no such object, or name
    │   ├── CorruptObjectError   (ValueError)           the bytes of an object are not what they should be
    │   ├── StoreFullError       (MemoryError)          there is no room for an object
    │   └── StoreUnreachableError (ConnectionError)     the store of another host does not answer
    ├── FeedError                (RuntimeError)         something is wrong between a feeder and a trainer
    │   └── FeederLostError      (ConnectionError)      no feeder is left, or none answers
    ├── StreamEndedError         (EOFError)             all who sent have ended, and nothing more will come
    ├── StreamTimeoutError       (TimeoutError)         nothing came for as long as one wanted to wait
    ├── SharedMemoryError        (MemoryError)          there is no shared memory for what goes to another process
    ├── WorkerDiedError          (RuntimeError)         a worker process died while it worked on a block
    ├── WorkerHangError          (TimeoutError)         workers do not move any more
    ├── WorkerEnvironmentError   (RuntimeError)         a Python environment for workers is missing or wrong
    └── GuestError               (RuntimeError)         a call in another Python environment failed
        └── GuestTimeoutError    (TimeoutError)         it took longer than it may

A text says what happened, what was seen and what to do. Shard and sample errors also carry the place as attributes
(``shard``, ``offset``, ``member``, ``key``, ``field``), so that a program can act on it. All of them can be pickled.

Beside the tree stand `StallWarning`: a run says that it waits, and for what; and `FeedWarning`: a feeder is lost, or of
no use, and others go on without it.
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
    "FeedError",
    "FeedWarning",
    "FeederLostError",
    "GuestError",
    "GuestTimeoutError",
    "IndexFileError",
    "MissingDeviceError",
    "MissingExtraError",
    "MissingFieldError",
    "ObjectNotFoundError",
    "PlanError",
    "SampleError",
    "SchemaError",
    "SettingsError",
    "ShardError",
    "SharedMemoryError",
    "ShoalError",
    "StallWarning",
    "StateError",
    "StoreError",
    "StoreFullError",
    "StoreUnreachableError",
    "StreamEndedError",
    "StreamTimeoutError",
    "TensorcomError",
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


def _placed(error: Exception, *, shard: str | None, offset: int | None = None, **names: str | None) -> str:
    quoted = {name: repr(value) for name, value in names.items() if value is not None}
    known = {"shard": shard, "offset": offset, **quoted}
    place = ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)
    return f"{place}: {error.args[0]}" if place else str(error.args[0])


class ShoalError(Exception):
    """Base of everything Shoal raises on purpose.

    >>> issubclass(PlanError, ShoalError)
    True
    """


class SettingsError(ShoalError, ValueError):
    """An environment variable or an option has a value that makes no sense.

    >>> from shoal.settings import parse_bytes
    >>> parse_bytes("a lot")
    Traceback (most recent call last):
    shoal.errors.SettingsError: ...
    """


class MissingExtraError(ShoalError, ImportError):
    """An optional library is needed and not installed; the text says which pip command brings it.

    >>> issubclass(MissingExtraError, ImportError)
    True
    """


class TrustError(ShoalError, ValueError):
    """Something that can run code (pickle, ``pipe:``) was met without ``trust=True``.

    >>> import shoal
    >>> shoal.files.open_read("pipe:cat a.tar")
    Traceback (most recent call last):
    shoal.errors.TrustError: ...
    """


class MissingDeviceError(ShoalError, LookupError):
    """A stage asks for a device that is not where it is done; the text says what was found, and what to write.

    >>> str(MissingDeviceError("'cuda:1' was asked for, and there is no graphics processor; write device=None"))
    "'cuda:1' was asked for, and there is no graphics processor; write device=None"
    """


class PlanError(ShoalError, ValueError):
    """A dataset, stage or loader is put together in a way that cannot work.

    >>> import shoal
    >>> shoal.from_arrays({"x": range(3)}).loader(0)
    Traceback (most recent call last):
    shoal.errors.PlanError: ...
    """


class StateError(ShoalError, ValueError):
    """A loader was given a state that it cannot go on from: damaged, incomplete, or of another plan.

    >>> issubclass(StateError, ValueError)
    True
    """


class UrlError(ShoalError, OSError):
    """Bytes could not be read from or written to a URL.

    >>> print(UrlError("http://host/a.tar answered 503", url="http://host/a.tar"))
    http://host/a.tar answered 503
    """

    def __init__(self, message: str, *, url: str | None = None) -> None:
        super().__init__(message)
        self.url = url

    def __str__(self) -> str:
        return str(self.args[0])


class UrlNotFoundError(UrlError, FileNotFoundError):
    """There is nothing at the URL, so trying again is pointless.

    >>> issubclass(UrlNotFoundError, FileNotFoundError)
    True
    """


class UrlChangedError(UrlError):
    """The object behind the URL changed between two parts of one read.

    >>> UrlChangedError("a.tar changed while it was being read", url="http://host/a.tar").url
    'http://host/a.tar'
    """


class CacheError(UrlError):
    """The shard cache could not keep a shard (disk full, shard larger than the cache).

    >>> str(CacheError("a.tar has 2 GB, and the cache may have 1", url="s3://data/a.tar"))
    'a.tar has 2 GB, and the cache may have 1'
    """


class ShardError(ShoalError, tarfile.ReadError):
    """The bytes of a shard are not what its format says.

    >>> print(ShardError("a header has a wrong checksum", shard="a.tar", offset=512, member="0001.jpg"))
    shard a.tar, offset 512, member '0001.jpg': a header has a wrong checksum
    """

    def __init__(
        self, message: str, *, shard: str | None = None, offset: int | None = None, member: str | None = None
    ) -> None:
        super().__init__(message)
        self.shard, self.offset, self.member = shard, offset, member

    def __str__(self) -> str:
        return _placed(self, shard=self.shard, offset=self.offset, member=self.member)


class TruncatedShardError(ShardError, EOFError):
    """The bytes of a shard end before its contents do.

    >>> import io, shoal
    >>> list(shoal.shards.StreamedTar(io.BufferedReader(io.BytesIO(b"half a header")), "a.tar").entries())
    Traceback (most recent call last):
    shoal.errors.TruncatedShardError: ...
    """


class CorruptShardError(ShardError):
    """A checksum, a number or an extended header of a shard is wrong.

    >>> import io, shoal
    >>> list(shoal.shards.StreamedTar(io.BufferedReader(io.BytesIO(b"X" * 1024)), "a.tar").entries())
    Traceback (most recent call last):
    shoal.errors.CorruptShardError: ...
    """


class UnsupportedMemberError(ShardError):
    """A tar member of a kind that Shoal does not read (sparse files, multi-volume parts).

    >>> print(UnsupportedMemberError("a part of a multi-volume archive", shard="a.tar", member="big.bin"))
    shard a.tar, member 'big.bin': a part of a multi-volume archive
    """


class SampleError(ShoalError, ValueError):
    """One sample, or one field of it, is wrong.

    >>> print(SampleError("it is empty", key="000007", field="jpg", shard="a.tar"))
    shard a.tar, sample '000007', field 'jpg': it is empty
    """

    def __init__(
        self, message: str, *, key: str | None = None, field: str | None = None, shard: str | None = None
    ) -> None:
        super().__init__(message)
        self.key, self.field, self.shard = key, field, shard

    def __str__(self) -> str:
        return _placed(self, shard=self.shard, sample=self.key, field=self.field)


class DuplicateFieldError(SampleError):
    """Two consecutive members of one sample have the same field name.

    >>> print(DuplicateFieldError("there are two", key="a", field="jpg", shard="s.tar"))
    shard s.tar, sample 'a', field 'jpg': there are two
    """


class MissingFieldError(SampleError, KeyError):
    """A field that was asked for is not in the sample.

    >>> print(MissingFieldError("there are x and __key__", key="a", field="y"))
    sample 'a', field 'y': there are x and __key__
    """


class DecodeError(SampleError):
    """The bytes of a field are not what its extension says.

    >>> from shoal.shards.codecs import decode
    >>> decode("cls", b"seven")
    Traceback (most recent call last):
    shoal.errors.DecodeError: ...
    """


class EncodeError(SampleError):
    """A value cannot be written under its extension.

    >>> import io, shoal
    >>> shoal.shards.TarWriter(io.BytesIO()).write({"__key__": "a", "jpg": "not a picture"})
    Traceback (most recent call last):
    shoal.errors.EncodeError: ...
    """


class TensorcomError(SampleError, AssertionError):
    """Something does not hold that Tensorcom asserts: of types, of names, of numbers of functions.

    >>> issubclass(TensorcomError, AssertionError)
    True
    """


class ErrorBudgetError(SampleError):
    """More samples failed than the run was allowed to skip; the text names the last, the ledger has all.

    >>> import shoal
    >>> broken = shoal.from_arrays({"x": range(10)}).map(lambda sample: {"x": 1 / 0})
    >>> list(broken.loader(2, on_error="skip", error_budget=3))
    Traceback (most recent call last):
    shoal.errors.ErrorBudgetError: ...
    """


class SchemaError(ShoalError, ValueError):
    """Files that are one dataset differ in their columns, or in the types of these.

    >>> str(SchemaError("b.parquet has no column 'x', which a.parquet has"))
    "b.parquet has no column 'x', which a.parquet has"
    """


class IndexFileError(ShoalError, ValueError):
    """An index file is of another version, damaged, or does not belong to its shard.

    >>> str(IndexFileError("a.tar.index is of another version; make it anew with shoal index"))
    'a.tar.index is of another version; make it anew with shoal index'
    """


class StallWarning(RuntimeWarning):
    """Nothing was delivered for a while; the text says which stage and worker has what.

    >>> issubclass(StallWarning, RuntimeWarning)  # so it can be shown, hidden or raised as other warnings are
    True
    """


class FeedWarning(RuntimeWarning):
    """A feeder is lost, or of no use; the text says which one and why, and others go on without it.

    >>> issubclass(FeedWarning, RuntimeWarning)  # so it can be shown, hidden or raised as other warnings are
    True
    """


class StoreError(ShoalError, RuntimeError):
    """Something is wrong with an object store, or with how it is used.

    >>> import shoal.store, tempfile
    >>> shoal.store.connect(tempfile.mkdtemp(), memory="1MB").put(object())
    Traceback (most recent call last):
    shoal.errors.StoreError: ...
    """


class ObjectNotFoundError(StoreError, LookupError):
    """There is no object of this id, or none of this name.

    >>> issubclass(ObjectNotFoundError, LookupError)
    True
    """


class CorruptObjectError(StoreError, ValueError):
    """The bytes of an object are not what they should be.

    >>> issubclass(CorruptObjectError, StoreError) and issubclass(CorruptObjectError, ValueError)
    True
    """


class StoreFullError(StoreError, MemoryError):
    """There is no room for an object; the text says what holds the memory.

    >>> issubclass(StoreFullError, MemoryError)
    True
    """


class StoreUnreachableError(StoreError, ConnectionError):
    """The store of another host does not answer.

    >>> issubclass(StoreUnreachableError, ConnectionError)
    True
    """


class FeedError(ShoalError, RuntimeError):
    """Something is wrong between a feeder and a trainer, or one of them refuses the other.

    >>> from shoal import feed
    >>> feed.connect("no address", 8)
    Traceback (most recent call last):
    shoal.errors.FeedError: ...
    """


class FeederLostError(FeedError, ConnectionError):
    """No feeder is left that could go on; the text says what became of each.

    >>> issubclass(FeederLostError, ConnectionError)
    True
    """


class StreamEndedError(ShoalError, EOFError):
    """All who sent have said that they have ended, so nothing more will come.

    >>> issubclass(StreamEndedError, EOFError)
    True
    """


class StreamTimeoutError(ShoalError, TimeoutError):
    """Nothing came for as long as one wanted to wait.

    >>> issubclass(StreamTimeoutError, TimeoutError)
    True
    """


class SharedMemoryError(ShoalError, MemoryError):
    """There is no shared memory for what goes to another process; the text says how much was wanted.

    >>> issubclass(SharedMemoryError, MemoryError)
    True
    """


class WorkerDiedError(ShoalError, RuntimeError):
    """A worker process died while it worked on a block: killed, crashed in a library, or left by its own code.

    >>> WorkerDiedError("a worker died while it worked on a.tar", pid=4711, exitcode=-9).signal
    'SIGKILL'
    """

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
    """Workers do not move any more; the text says where each of them is.

    >>> issubclass(WorkerHangError, TimeoutError)
    True
    """


class WorkerEnvironmentError(ShoalError, RuntimeError):
    """A Python environment for workers is missing, broken, too old, or could not be built.

    >>> issubclass(WorkerEnvironmentError, RuntimeError)
    True
    """


class GuestError(ShoalError, RuntimeError):
    """A call in another Python environment failed; its own exception stays there, and is told as text.

    >>> GuestError("math:sqrt failed: math domain error", kind="ValueError").kind
    'ValueError'
    """

    def __init__(self, message: str, *, kind: str | None = None, traceback: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        """The class of the exception over there, such as ``ValueError`` or ``package.SomeError``."""
        self.traceback = traceback
        """Its traceback, as text."""


class GuestTimeoutError(GuestError, TimeoutError):
    """A call in another Python environment took longer than it may; the process was ended.

    >>> issubclass(GuestTimeoutError, TimeoutError)
    True
    """
