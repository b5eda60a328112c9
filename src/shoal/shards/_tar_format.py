"""Make tar headers: ustar where it can hold the name, a PAX header in front where it cannot."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import PlanError
from shoal.shards._header import BLOCK, padded

__all__ = ["END_OF_ARCHIVE", "Attributes", "HeaderMaker", "pax_record"]

END_OF_ARCHIVE = bytes(2 * BLOCK)
_LARGEST_OCTAL = 8**11
_CHECKSUM_AS_BLANKS = 8 * ord(" ")


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a tar says of its members besides name and bytes. The defaults are fixed, so that equal samples make
    equal shards, whoever writes them and whenever.

    >>> import io
    >>> from shoal.shards import TarWriter
    >>> with TarWriter(io.BytesIO(), attributes=Attributes(user="me", mtime=1)) as writer:
    ...     writer.write({"__key__": "a", "txt": "hello"})
    5
    """

    mtime: int = 0
    mode: int = 0o444
    user: str = "shoal"
    group: str = "shoal"

    def __post_init__(self) -> None:
        for what in ("user", "group"):
            if len(getattr(self, what).encode()) > 31:
                raise PlanError(f"the {what} name {getattr(self, what)!r} is longer than the 31 bytes a tar has for it")
        if not 0 <= self.mtime < _LARGEST_OCTAL or not 0 <= self.mode < 8**7:
            raise PlanError(f"mtime {self.mtime} or mode {self.mode:o} does not fit into a tar header")


class HeaderMaker:
    """Makes headers that differ in name and size only.

    >>> len(HeaderMaker(Attributes()).header("a.txt", 5))
    512
    """

    def __init__(self, attributes: Attributes) -> None:
        self._owner = b"%07o\0" % attributes.mode + b"0000000\0" * 2
        self._mtime = b"%011o\0" % attributes.mtime
        names = attributes.user.encode().ljust(32, b"\0") + attributes.group.encode().ljust(32, b"\0")
        self._after_link = b"ustar\x0000" + names + b"0000000\0" * 2
        self._fixed_sum = sum(self._owner) + sum(self._mtime) + sum(self._after_link) + _CHECKSUM_AS_BLANKS

    def header(self, name: str, size: int) -> bytes:
        """Make all the headers of a member."""
        raw = name.encode("utf-8", "surrogateescape")
        place = _fit(raw) if name.isascii() else None
        if place is not None and size < _LARGEST_OCTAL:
            return self._block(*place, size, b"0")
        # The plain header behind it is for readers that know no PAX; they see the end of the name.
        plain = self._block(raw[-100:], b"", size if size < _LARGEST_OCTAL else 0, b"0")
        return self.extension(raw, _records(raw, size)) + plain

    def extension(self, name: bytes, records: bytes) -> bytes:
        """Make a PAX header that stands before that of a member."""
        header = self._block(b"PaxHeaders/" + name[-80:], b"", len(records), b"x")
        return header + records.ljust(padded(len(records)), b"\0")

    def _block(self, name: bytes, prefix: bytes, size: int, kind: bytes) -> bytes:
        digits = b"%011o\0" % size
        # Only the parts that differ are summed: the sum over all 512 bytes would cost more than the rest together.
        total = self._fixed_sum + sum(name) + sum(prefix) + sum(digits) + kind[0]
        block = b"%b%b%b%b%06o\0 %b%b%b%b" % (
            name.ljust(100, b"\0"),
            self._owner,
            digits,
            self._mtime,
            total,
            kind,
            bytes(100),
            self._after_link,
            prefix,
        )
        return block.ljust(BLOCK, b"\0")


def _fit(name: bytes) -> tuple[bytes, bytes] | None:
    """Put a name into the 100 bytes for names and the 155 for what stands before a slash, if it can be done."""
    if len(name) <= 100:
        return name, b""
    slash = name.find(b"/", len(name) - 101)
    if 0 < slash <= 155 and slash < len(name) - 1:
        return name[slash + 1 :], name[:slash]
    return None


def _records(name: bytes, size: int) -> bytes:
    records = b""
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        records += pax_record(b"hdrcharset", b"BINARY")
    records += pax_record(b"path", name)
    return records + (pax_record(b"size", b"%d" % size) if size >= _LARGEST_OCTAL else b"")


def pax_record(name: bytes, value: bytes) -> bytes:
    """Make a PAX record, which begins with its own length."""
    body = b" " + name + b"=" + value + b"\n"
    length = len(body) + len(str(len(body)))
    length = len(body) + len(str(length))
    return b"%d" % length + body
