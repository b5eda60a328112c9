"""Samples are found as they lie in a tar, alike over a map and along a stream, however little of it is in memory."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import CorruptShardError, DuplicateFieldError, EncodeError, ShardError, TruncatedShardError
from shoal.shards import ShardWriter, Span, TarWriter, _windows, load_index, read_spans
from shoal.shards._span_reader import SpanReader
from support.files import body as noise
from support.tars import END, FORMATS, Unseekable, gnu_long, header, member, pack, pax, read_both, samples_of


def mapped(data: bytes) -> Iterator[Span]:
    file = os.memfd_create("tar")
    with open(file, "r+b") as opened:
        opened.write(data)
        opened.flush()
        yield from SpanReader(_windows.MapWindow(opened, "s.tar")).spans()


def streamed(data: bytes, *, held: int = 2**20, piece: int = 2**20) -> Iterator[Span]:
    """Read along a stream, with a window that is as small as it can be."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"_FIRST": 512, "_LEAST": 512, "_CHEAP": 0}.items():
            patch.setattr(_windows, name, value)
        stream = io.BufferedReader(Unseekable(data, piece))
        yield from SpanReader(_windows.StreamWindow(stream, "s.tar", held)).spans()


def copied(spans: Iterator[Span]) -> tuple[bytes, list[tuple[str, dict[str, tuple[int, int]], int]]]:
    """Write samples one after the other, and tell what was said of them."""
    out, told = io.BytesIO(), []
    for span in spans:
        for piece in span.pieces():
            out.write(piece)
        told.append((span.key, dict(span.fields), span.size))
    return out.getvalue() + END, told


def found(spans: Iterator[Span]) -> tuple[list[str], str]:
    """Give the keys of the samples before an error, and the error."""
    keys: list[str] = []
    try:
        for span in spans:
            for _ in span.pieces():
                pass
            keys.append(span.key)
    except ShardError as error:
        return keys, f"{type(error).__name__} {error}"
    return keys, ""


names = st.sampled_from(["a", "b", "folder/c", "é", "x" * 120])
files = st.lists(st.tuples(names, st.sampled_from(["jpg", "cls", "txt"]), st.integers(0, 3000)), max_size=12)
others = st.sampled_from([b"", header("folder/", kind=b"5"), member("README", b"words" * 300)])


@st.composite
def tars(draw: st.DrawFn) -> bytes:
    """Tars of three makes, with what belongs to no sample between the members; no field comes twice in a row."""
    data, last = b"", ("", set[str]())
    for number, (key, field, size) in enumerate(draw(files)):
        key, fields = last if last[0] == key else (key, set())
        form = draw(st.sampled_from(sorted(FORMATS) if len(key) < 100 else ["gnu", "pax"]))
        if field not in fields:
            whole = pack([(f"{key}.{field}", noise(size, number))], form, blocking=False)
            data += draw(others) + whole[: -len(END)]
            last = key, fields | {field}
    return data + END


@given(tars(), st.integers(512, 20_000), st.sampled_from([1, 511, 4096, 2**20]))
def test_all_ways_find_the_same_samples(data: bytes, held: int, piece: int) -> None:
    copy, told = copied(mapped(data))
    assert samples_of(copy) == samples_of(data)
    assert (copy, told) == copied(streamed(data)) == copied(streamed(data, held=held, piece=piece))


@given(tars(), st.integers(512, 20_000))
def test_what_is_told_of_fields_is_where_they_are(data: bytes, held: int) -> None:
    copy, told = copied(streamed(data, held=held))
    at, places = 0, []
    for key, fields, size in told:
        begin, sample = at, {}
        for name, (before, length) in fields.items():
            sample[name] = copy[at + before : at + before + length]
            at += before + -(-length // 512) * 512
        places.append((key, sample))
        assert at == begin + size
    assert places == samples_of(data)


CUT = pack([(f"{number}.{field}", noise(700, number)) for number in range(3) for field in ("a", "b")], blocking=False)


@pytest.mark.parametrize("end", [*range(256, len(CUT), 256), *range(510, len(CUT), 512)])
def test_a_cut_tar_gives_what_was_whole_and_then_the_place(end: int) -> None:
    """A sample is whole when the header behind it has come."""
    expected = [f"{number}" for number in range(3) if (number + 1) * 3072 + 512 <= end]
    error = read_both(CUT[:end]).error
    text = "" if error is None else f"{type(error).__name__} {error}"
    assert found(mapped(CUT[:end])) == found(streamed(CUT[:end])) == (expected, text)


def test_damage_is_named_with_its_place() -> None:
    data = bytearray(CUT)
    data[4 * 1536 + 3] ^= 1
    for spans in (mapped(bytes(data)), streamed(bytes(data)), streamed(bytes(data), held=512)):
        keys, error = found(spans)
        assert keys == ["0"]
        assert error == f"{CorruptShardError.__name__} shard s.tar, offset {4 * 1536}: the header's checksum is wrong"


LARGE = [("a.bin", noise(200_000)), ("a.txt", b"hello"), ("b.bin", noise(100_000, 1)), ("c.txt", b"bye")]


def test_a_large_sample_passes_in_pieces() -> None:
    flows, sizes = {}, {}
    for span in streamed(pack(LARGE), held=50_000, piece=10_000):
        flows[span.key] = span.flows
        sizes[span.key] = [len(piece) for piece in span.pieces()]
    assert flows == {"a": True, "b": True, "c": False}
    assert max(sizes["a"]) <= 50_000
    assert sum(sizes["a"]) == 512 + 200_192 + 1024


def test_a_large_sample_that_nobody_wants_is_passed_over() -> None:
    (span,) = islice(streamed(pack(LARGE), held=50_000), 2, None)
    assert (span.key, span.size) == ("c", 1024)


def test_a_large_sample_can_be_kept() -> None:
    spans = [span.held() for span in streamed(pack(LARGE), held=50_000)]
    assert [span.flows for span in spans] == [False, False, False]
    assert samples_of(copied(iter(spans))[0]) == samples_of(pack(LARGE))


def test_spans_of_a_stream_can_be_kept_and_mixed() -> None:
    spans = [span.held() for span in streamed(CUT)]
    assert samples_of(copied(reversed(spans))[0]) == samples_of(CUT)[::-1]


def test_large_files_that_belong_to_no_sample_are_left_out() -> None:
    data = (
        member("a.txt", b"1") + member("README", noise(100_000)) + member("a.cls", b"2") + member("b.txt", b"3") + END
    )
    for held in (1000, 10_000, 1_000_000):
        assert samples_of(copied(streamed(data, held=held))[0]) == [
            ("a", {"txt": b"1", "cls": b"2"}),
            ("b", {"txt": b"3"}),
        ]
    assert found(streamed(member("README", noise(100_000)) + END, held=1000)) == ([], "")


def test_a_field_that_comes_twice_is_refused_also_in_a_large_sample() -> None:
    data = member("a.bin", noise(5000)) + member("a.BIN", b"1") + END
    for spans in (mapped(data), streamed(data), streamed(data, held=1000)):
        with pytest.raises(DuplicateFieldError, match="sample 'a', field 'bin'"):
            found(spans)


def test_headers_without_end_are_refused() -> None:
    data = b"".join(gnu_long(noise(10**6)) for _ in range(140))
    with pytest.raises(ShardError, match="bytes would have to be held"):
        list(islice(SpanReader(_windows.StreamWindow(io.BufferedReader(io.BytesIO(data)), "s.tar", 2**20)).spans(), 1))


def test_a_global_header_goes_with_the_members_it_holds_for() -> None:
    held_for = pax((b"mtime", b"1234567.5"), (b"comment", b"made by hand"), kind=b"g")
    own = pax((b"mtime", b"7654321"), (b"path", b"c.txt"))
    first = (
        held_for
        + header("folder/", kind=b"5")
        + member("a.txt", b"1")
        + member("a.cls", b"2")
        + own
        + member("x", b"3")
    )
    data = first + END + member("d.txt", b"4") + END
    for spans in (mapped(data), streamed(data), streamed(data, held=512)):
        copy, _ = copied(spans)
        with tarfile.open(fileobj=io.BytesIO(copy)) as tar:
            assert not tar.pax_headers
            assert [(info.name, info.mtime) for info in tar] == [
                ("a.txt", 1234567.5), ("a.cls", 1234567.5), ("c.txt", 7654321.0), ("d.txt", 0)
            ]  # fmt: skip
        assert samples_of(copy) == samples_of(data)


def test_a_comment_on_an_archive_is_not_copied() -> None:
    data = pax((b"comment", b"0123abc"), kind=b"g") + member("a.txt", b"1") + END
    assert copied(mapped(data))[0] == member("a.txt", b"1") + END


def test_spans_written_to_shards_have_an_index_that_is_right(tmp_path: Path) -> None:
    source = tmp_path / "a.tar"
    source.write_bytes(CUT)
    with ShardWriter(f"{tmp_path}/out-%d.tar", 2, index=True) as writer:
        for span in read_spans(str(source)):
            writer.write_span(span)
    assert [(shard.count, shard.size) for shard in writer.shards] == [(2, 4 * 1536 + 1024), (1, 2 * 1536 + 1024)]
    index, data = load_index(f"{tmp_path}/out-1.tar.index"), (tmp_path / "out-1.tar").read_bytes()
    (entry,) = index.entries()
    fields = {name: data[offset : offset + size] for name, (offset, size) in entry.fields.items()}
    assert (entry.key, fields) == samples_of(CUT)[2]


def test_a_large_sample_goes_to_the_shard_it_fits_in(tmp_path: Path) -> None:
    members = [(f"{number}.{field}", noise(40_000, number)) for number in range(6) for field in ("a", "b")]
    data = pack(members)
    for held in (1000, 10**6):
        with ShardWriter(f"{tmp_path}/out-%d.tar", maxsize=170_000) as writer:
            for span in streamed(data, held=held):
                assert writer.write_span(span)
        assert [shard.count for shard in writer.shards] == [2, 2, 2]
        read = [sample for shard in writer.shards for sample in samples_of(Path(shard.url).read_bytes())]
        assert read == samples_of(data)


def test_a_sample_that_may_not_begin_a_shard_is_not_written(tmp_path: Path) -> None:
    for held in (1000, 10**6):
        with ShardWriter(f"{tmp_path}/out-%d.tar", maxsize=5000) as writer:
            assert [writer.write_span(span, may_begin=writer.begun < 1) for span in streamed(CUT, held=held)] == [
                True, False, False
            ]  # fmt: skip
        assert [shard.count for shard in writer.shards] == [1]


def test_equal_keys_side_by_side_are_refused() -> None:
    (first,), (second,) = (list(mapped(member(name, b"1") + END)) for name in ("a.txt", "a.cls"))
    with TarWriter(io.BytesIO()) as writer:
        writer.write_span(first)
        with pytest.raises(EncodeError, match="the same key twice in a row"):
            writer.write_span(second)


def test_an_empty_file_is_no_tar(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"")
    with pytest.raises(TruncatedShardError, match="the file is empty"):
        list(read_spans(str(tmp_path / "a.tar")))
