"""``tarshow``: what is printed of samples, and how pictures get to a terminal or onto a sheet."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shoal.cli._fields import human, printable
from shoal.cli.tar._pictures import PROTOCOLS, protocol_of, small
from shoal.shards import TarWriter
from support.shell import shell
from support.tars import pack, write_shard


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_shard(tmp_path / "t1.tar", [(f"00{n}", {"txt": letter}) for n, letter in enumerate([b"a", b"b", b"c"])])
    return tmp_path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    with TarWriter(tmp_path / "pictures.tar") as writer:
        for number, colour in enumerate([(255, 0, 0), (0, 255, 0), (0, 0, 255)]):
            pixels = np.full((30, 40, 3), colour, np.uint8)
            writer.write({"__key__": f"pic{number}", "png": pixels, "seg.png": 255 - pixels, "cls": number})
    return tmp_path


def shown(text: str, folder: Path) -> str:
    done = shell(text, folder)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def test_a_block_of_lines_for_each_sample(folder: Path) -> None:
    first = "__key__             \t000\n__source__          \tt1.tar\ntxt                 \tb'a'\n\n"
    second = first.replace("000", "001").replace("b'a'", "b'b'")
    assert shown("tarshow -c 2 t1.tar", folder) == first + second
    assert shown("cat t1.tar | tarshow", folder).count("\n\n") == 3
    assert "\t002\n" in shown("tarshow 't1.tar#2'", folder)


def test_values_are_cut_and_fields_chosen(folder: Path) -> None:
    write_shard(folder / "long.tar", [("k", {"txt": b"x" * 100, "cls": b"1", "json": b"{}"})])
    assert shown("tarshow -f 'html;txt cls' long.tar", folder).splitlines() == [
        "__key__             \tk",
        "__source__          \tlong.tar",
        "cls                 \tb'1'",
        "txt                 \tb'" + "x" * 58,
        "",
    ]


@pytest.mark.parametrize("stream", ["", "cat x.tar | "])
def test_names_are_lower_case_unless_wanted_as_they_are(stream: str, folder: Path) -> None:
    (folder / "x.tar").write_bytes(pack([("a.JPG", b"1"), ("a.Seg.PNG", b"2"), ("b.jpg", b"3")]))
    given = "" if stream else "x.tar"
    names = [line.split()[0] for line in shown(f"{stream}tarshow {given}", folder).splitlines() if line]
    assert names == ["__key__", "__source__", "jpg", "seg.png", "__key__", "__source__", "jpg"]
    names = [line.split()[0] for line in shown(f"{stream}tarshow --verbatim-keys {given}", folder).splitlines() if line]
    assert names == ["JPG", "Seg.PNG", "__key__", "__source__", "__key__", "__source__", "jpg"]


@pytest.mark.parametrize("option", ["", "--table", "--verbatim-keys"])
def test_no_escape_sequence_of_the_data_reaches_the_terminal(option: str, folder: Path) -> None:
    evil = "\x1b]0;owned\x07\x9b31m\u202e"
    (folder / "evil.tar").write_bytes(pack([(f"key{evil}.txt", evil.encode()), (f"key{evil}.a{evil}", b"\xff\x1b[2J")]))
    text = shown(f"tarshow {option} evil.tar", folder)
    assert not set(text) & set("\x1b\x07\x9b\u202e")
    assert "\\x1b" in text


def test_a_table_has_a_column_for_each_field(folder: Path) -> None:
    write_shard(folder / "x.tar", [("a", {"txt": b"hello", "jpg": b"\xff\xd8" * 1500}), ("b", {"cls": b"7"})])
    text = shown("tarshow --table x.tar", folder)
    rows = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in text.splitlines() if line[0] in "│┃"]
    assert rows == [["key", "jpg", "txt", "cls"], ["a", "3 kB", "hello", ""], ["b", "", "", "7"]]


def test_a_table_ends_where_nobody_would_read_on(folder: Path) -> None:
    write_shard(folder / "many.tar", [(f"key{n}", {"cls": b"7"}) for n in range(50)])
    assert shown("tarshow --table many.tar", folder).count("key") == 20 + 1
    assert shown("tarshow --table -c 30 many.tar", folder).count("key") == 30 + 1


@pytest.mark.parametrize(
    ("term", "program", "protocol"),
    [
        ("xterm-kitty", "", "kitty"),
        ("xterm-ghostty", "ghostty", "kitty"),
        ("xterm-256color", "iTerm.app", "iterm2"),
        ("xterm-256color", "WezTerm", "iterm2"),
        ("foot", "", "sixel"),
        ("mlterm-256color", "", "sixel"),
        ("xterm-256color", "Apple_Terminal", "blocks"),
        ("", "", "blocks"),
    ],
)
def test_a_terminal_is_known_by_its_name(term: str, program: str, protocol: str) -> None:
    assert protocol_of(term, program) == protocol


def gradient(width: int, height: int) -> Image.Image:
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([across, down, 0 * down], axis=-1).astype(np.uint8))


def test_kitty_gets_the_picture_in_pieces() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8))
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", PROTOCOLS["kitty"](noise))
    assert [options for options, _ in pieces] == ["a=T,f=100,m=1", *["m=1"] * (len(pieces) - 2), "m=0"]
    assert all(len(text) <= 4096 for _, text in pieces)
    drawn = Image.open(io.BytesIO(base64.b64decode("".join(text for _, text in pieces))))
    assert np.array_equal(np.asarray(drawn), np.asarray(noise))


def test_iterm2_gets_the_picture_whole() -> None:
    match = re.fullmatch(r"\x1b]1337;File=inline=1;size=(\d+):([^\x07]*)\x07\n", PROTOCOLS["iterm2"](gradient(9, 7)))
    assert match is not None
    data = base64.b64decode(match[2])
    assert len(data) == int(match[1])
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), np.asarray(gradient(9, 7)))


def drawn_sixels(text: str) -> np.ndarray:
    """Draw what a sixel terminal would."""
    head = re.match(r'\x1bPq"1;1;(\d+);(\d+)', text)
    assert head is not None
    assert text.endswith("\x1b\\\n")
    width, height = int(head[1]), int(head[2])
    picture = np.full((height + 6, width, 3), -1.0)
    colours: dict[int, list[float]] = {}
    colour, left, top = 0, 0, 0
    tokens = re.findall(r"#(\d+)(?:;2;(\d+);(\d+);(\d+))?|!(\d+)([?-~])|([?-~])|([$-])", text[head.end() : -3])
    for number, *parts, count, repeated, single, move in tokens:
        if number and parts[0]:
            colours[int(number)] = [int(part) * 2.55 for part in parts]
        elif number:
            colour = int(number)
        elif move:
            left, top = 0, top + 6 * (move == "-")
        else:
            bits, right = ord(repeated or single) - 63, left + int(count or 1)
            for place in range(6):
                if bits >> place & 1:
                    picture[top + place, left:right] = colours[colour]
            left = right
            assert left <= width
    assert (picture[height:] == -1).all()
    return picture[:height]


@pytest.mark.parametrize("size", [(1, 1), (20, 13), (64, 6), (7, 18)])
def test_sixels_are_the_picture_in_few_colours(size: tuple[int, int]) -> None:
    drawn = drawn_sixels(PROTOCOLS["sixel"](gradient(*size)))
    assert (drawn >= 0).all()
    assert np.abs(drawn - np.asarray(gradient(*size)).astype(float)).mean() < 16


def test_blocks_hold_two_pixels_each() -> None:
    text = PROTOCOLS["blocks"](Image.fromarray(np.array([[[1, 2, 3]], [[4, 5, 6]], [[7, 8, 9]]], np.uint8)))
    assert text == "\x1b[38;2;1;2;3m\x1b[48;2;4;5;6m▀\x1b[0m\n\x1b[38;2;7;8;9m\x1b[49m▀\x1b[0m\n"


def test_pictures_fit_and_never_grow() -> None:
    assert small(gradient(100, 50), 40, 40).size == (40, 20)
    assert small(gradient(1000, 1), 10, 10).size == (10, 1)
    assert small(gradient(5, 3), 40, 40).size == (5, 3)


def test_pictures_are_shown_below_their_field(pictures: Path) -> None:
    text = shown("tarshow -c 1 -f 'jpg;png cls' --images pictures.tar", pictures)
    lines = text.splitlines()
    assert lines[2].startswith("cls ")
    assert lines[3].startswith("png ")
    assert lines[4] == "\x1b[38;2;255;0;0m\x1b[48;2;255;0;0m▀" * 40 + "\x1b[0m"
    assert len(lines) == 4 + 15 + 1
    assert "\x1b_G" in shown("tarshow -c 1 --images --protocol kitty pictures.tar", pictures)


def test_a_field_that_is_no_picture_is_said_and_passed_over(folder: Path) -> None:
    write_shard(folder / "x.tar", [("a", {"png": b"\x1b[2Jno picture"}), ("b", {"png": b""})])
    done = shell("tarshow --images x.tar", folder)
    assert done.returncode == 0
    assert done.stdout.count(b"\n\n") == 2
    assert done.stderr.count(b"expected a picture") == 2
    assert b"\x1b" not in done.stdout + done.stderr


def test_a_contact_sheet_has_all_pictures(pictures: Path) -> None:
    done = shell("tarshow --png sheet.png -f png pictures.tar", pictures)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"# 3 pictures in sheet.png\n")
    with Image.open(pictures / "sheet.png") as opened:
        sheet = np.asarray(opened)
    for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255)):
        assert (sheet == colour).all(axis=-1).sum() == 30 * 40
    assert (sheet < 128).all(axis=-1).sum() > 20  # the captions
    shell("tarshow --png one.png -f png -c 1 pictures.tar", pictures)
    with Image.open(pictures / "one.png") as opened:
        assert opened.width < sheet.shape[1]


def test_a_sheet_without_pictures_is_refused(folder: Path) -> None:
    done = shell("tarshow --png sheet.png t1.tar", folder)
    assert done.returncode == 2
    assert b"there is no picture in these samples" in done.stderr
    assert not (folder / "sheet.png").exists()


def test_words_are_safe_and_sizes_short() -> None:
    assert printable("a\tb\x1b\u202e\x85ü\udcff") == "a\\tb\\x1b\\u202e\\x85ü\\udcff"
    assert [human(size) for size in (0, 999, 1000, 1234, 999_400, 2.5e9, 3e18)] == [
        "0 B", "999 B", "1 kB", "1.2 kB", "999 kB", "2.5 GB", "3000 PB",
    ]  # fmt: skip
