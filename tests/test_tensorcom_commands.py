"""``tensormon``, ``tensorstat``, ``tensorshow``: what they show of a stream, and how they end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from PIL import Image

from shoal._array_picture import picture_of
from shoal.cli.tensorstat import Figures
from shoal.errors import DecodeError
from shoal.feed.tensorcom import Connection
from support.shell import environment, shell
from support.tensorcom import batch

RED = np.zeros((4, 30, 40, 3), np.uint8) + np.array([255, 0, 0], np.uint8)


def watched(line: str, messages: Iterable[Any], folder: Path, code: int = 0, **options: Any) -> tuple[list[str], str]:
    """Run a command that listens to a stream; give the lines that it prints, and what it says."""

    def feed() -> None:
        with Connection(f"zpush+ipc://{folder}/socket", **options) as source:
            source.serve(messages)

    with ThreadPoolExecutor(1) as pool:
        fed = pool.submit(feed)
        done = shell(line.replace("URL", f"zpull+ipc://{folder}/socket"), folder)
        fed.result()
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode().splitlines(), done.stderr.decode()


def test_rates_are_shown_while_messages_come(tmp_path: Path) -> None:
    lines, said = watched("tensormon -r 2 URL", (batch(number) for number in range(5)), tmp_path)
    assert [line.split()[0] for line in lines] == ["2", "4"]
    pattern = r" {19}\d +\d+\.\d{3} batches/s +\d+\.\d{3} samples/s \(batchsize: 4\)"
    assert all(re.fullmatch(pattern, line) for line in lines)
    assert said == f"# receiving from zpull+ipc://{tmp_path}/socket\n# 5 messages, 20 samples, 320 B\n"


def test_messages_are_not_looked_into_if_that_is_not_wanted(tmp_path: Path) -> None:
    lines, said = watched("tensormon -R -r 3 URL", (batch(number) for number in range(4)), tmp_path)
    assert re.fullmatch(r" {19}3 +\d+\.\d{3} batches/s \S+ .?B/s", lines[0])
    assert said.splitlines()[-1] == "# 4 messages, 256 B"
    lines, said = watched("tensorstat -r URL", (batch(number) for number in range(4)), tmp_path)
    assert lines == []
    assert "# 4 messages, 256 B\n# rate " in said


def test_a_count_and_silence_end_a_command(tmp_path: Path) -> None:
    _, said = watched("tensormon -c 3 URL", (batch(number) for number in range(3)), tmp_path)
    assert said.splitlines()[-1] == "# 3 messages, 12 samples, 192 B"
    _, said = watched("tensorstat -t 0.3 URL", [batch(1)], tmp_path, marks=False)
    assert said.splitlines()[1] == "# nothing more came for 0.3 s"
    assert "# 1 message, 4 samples" in said


@pytest.mark.parametrize("name", ["tensormon", "tensorstat", "tensorshow"])
def test_where_nobody_sends_it_says_so(name: str, tmp_path: Path) -> None:
    done = shell(f"{name} --timeout 0.1 zsub+ipc://{tmp_path}/{{a,b}}", tmp_path)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().splitlines() == [
        f"# receiving from zsub+ipc://{tmp_path}/a, zsub+ipc://{tmp_path}/b",
        f"{name}: nothing came for 0.1 s; nobody was seen who sends",
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tensormon tcp://localhost:1", "is no URL of Tensorcom"),
        ("tensormon zpush://127.0.0.1:1", "does not receive; URLs that do begin with zpull"),
        ("tensormon -t 0", "a timeout of 0 seconds is none"),
        ("tensormon -r 0", "0 is not in the range"),
        ("tensorshow -m film", "is not one of 'imgclass', 'img2img'"),
        ("tensorshow -C broken.json", "broken.json is not JSON"),
        ("tensorshow -C number.json", "has to be a list of names, or an object of names by class"),
    ],
)
def test_what_makes_no_sense_is_said(line: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "number.json").write_text("3")
    done = shell(line, tmp_path)
    assert done.returncode == 2
    assert words in done.stderr.decode()
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["tensormon", "tensorstat", "tensorshow --png sheet.png"])
def test_an_interrupt_ends_it_without_a_word(name: str, tmp_path: Path) -> None:
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell's jobs do not
    module, *options = name.split()
    program = f"{hears}; import sys; sys.argv = {[module, *options]!r}; from shoal.cli.{module} import run; run()"
    process = subprocess.Popen(
        ["python", "-c", program], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith(b"# receiving from zsub://127.0.0.1:7880")
    os.kill(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_bytes_that_are_no_message_are_named(tmp_path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.PUSH) as source:
        source.connect(f"ipc://{tmp_path}/socket")
        source.send_multipart([b"\x1b[2J" * 6, b""])
        done = shell(f"tensormon zpull+ipc://{tmp_path}/socket", tmp_path)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1].startswith("tensormon: the tenbin dtype b'\\x1b[2J")


def test_figures_are_those_of_all_values(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    messages = [[rng.normal(5, 3, (n, 7)).astype("f4"), np.full(n, n, "u1"), np.zeros((0, 2), "i2")] for n in (3, 8, 1)]
    lines, said = watched("tensorstat URL", messages, tmp_path)
    values = np.concatenate([message[0].ravel() for message in messages]).astype(float)
    low, high = values.min(), values.max()
    assert lines == [
        "=== Input 0 ===",
        "",
        f"3 [{low:.3g} {high:.3g}] mean={values.mean():.3g} std={values.std():.3g} n=84",
        "float32 (1, 7)",
        "float32 (3, 7)",
        "float32 (8, 7)",
        "",
        "=== Input 1 ===",
        "",
        "3 [1 8] mean=6.17 std=2.64 n=12",
        "uint8 (1,)",
        "uint8 (3,)",
        "uint8 (8,)",
        "",
        "=== Input 2 ===",
        "",
        "3 without elements",
        "int16 (0, 2)",
        "",
    ]
    assert "# 3 messages, 12 samples" in said
    assert "# 3 messages, 3 samples" in watched("tensorstat -b URL", messages, tmp_path)[1]


def test_figures_are_exact_far_from_zero() -> None:
    figures = Figures()
    for part in np.split(np.arange(10**6, dtype="f8") + 1e9, 10):
        figures.add(part)
    assert figures.mean == pytest.approx(1e9 + 499999.5, rel=1e-15)
    assert figures.squares / figures.size == pytest.approx((10**12 - 1) / 12, rel=1e-9)


def test_pictures_are_drawn_with_their_classes(tmp_path: Path) -> None:
    (tmp_path / "names.json").write_text(json.dumps({"0": "cat", "1": "d\x1b[2Jog"}))
    labels = np.array([0, 1, 2, 3], np.int32)
    lines, _ = watched("tensorshow -B 3 -C names.json URL", [[RED, labels]] * 2, tmp_path)
    assert lines[:2] == ["uint8 (4, 30, 40, 3) 0 255", "int32 (4,) 0 3"]
    assert [line for line in lines if line.startswith("[")] == [
        "[0] class = cat",
        "[1] class = d\\x1b[2Jog",
        "[2] class = 2",
    ] * 2
    assert sum(line.startswith("\x1b[38;2;255;0;0m") for line in lines) == 6 * 15, "two rows of pixels in each"


def test_pictures_of_every_make_get_onto_a_sheet(tmp_path: Path) -> None:
    grey = np.linspace(-3, 9, 4 * 30 * 40, dtype="f4").reshape(4, 30, 40)
    for pictures in (RED, RED.transpose(0, 3, 1, 2), grey, grey[..., None], (RED / 255).astype("f2")):
        _, said = watched("tensorshow -B 9 --png sheet.png URL", [[pictures, np.arange(4, dtype="i4")]], tmp_path)
        assert said.splitlines()[-1] == "# 4 pictures in sheet.png"
        with Image.open(tmp_path / "sheet.png") as sheet:
            assert (sheet.format, sheet.width) == ("PNG", 2 * (128 + 8) + 8)
    _, said = watched("tensorshow -b --png sheet.png URL", [[RED[0], np.int32(3)]], tmp_path)
    assert "# 1 picture in sheet.png" in said
    _, said = watched("tensorshow --png sheet.png URL", [[RED]] * 3, tmp_path)
    assert "# 3 pictures in sheet.png" in said


def test_two_pictures_stand_beside_each_other(tmp_path: Path) -> None:
    lines, _ = watched("tensorshow -m img2img -c 1 URL", [[RED, 255 - RED]], tmp_path)
    assert lines[-1] == "[0]"
    assert "\x1b[38;2;255;0;0m" in lines[2]
    assert "\x1b[38;2;0;255;255m" in lines[2]
    _, said = watched("tensorshow -m img2img URL", [[RED]], tmp_path, code=1)
    assert "a message has one array, and img2img shows two pictures" in said


def test_arrays_that_are_no_pictures_are_named(tmp_path: Path) -> None:
    _, said = watched("tensorshow URL", [[np.zeros((4, 10), "f4")]], tmp_path, code=1)
    assert "tensorshow: an array of the shape (10,) is no picture" in said
    _, said = watched("tensorshow --png sheet.png URL", [], tmp_path, code=2)
    assert "no message came with a picture in it" in said
    for shape in [(0, 4), (5, 5, 5), (3,), (2, 2, 3, 3)]:
        with pytest.raises(DecodeError, match="is no picture"):
            picture_of(np.zeros(shape))


def test_numbers_become_brightness() -> None:
    values = np.array([[0.0, 0.5, 1.0]])
    assert np.asarray(picture_of(values))[0, :, 0].tolist() == [0, 128, 255]
    assert np.asarray(picture_of(values * 20 - 10))[0, :, 0].tolist() == [0, 128, 255]
    assert np.asarray(picture_of(np.array([[np.nan, np.inf, 1.0]])))[0, :, 0].tolist() == [0, 0, 255]
    assert np.asarray(picture_of(np.full((2, 2), 7)))[0, 0, 0] == 0
