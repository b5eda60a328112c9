"""How fast data comes: what is counted, which formats, what is said."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shoal.cli._bench import Trial, measured
from shoal.readers import from_arrays
from shoal.shards import TarWriter
from support.shell import shell

pytestmark = pytest.mark.timeout(120)

COUNT = 150


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures in two tars, and the same in other formats."""
    made = tmp_path_factory.mktemp("bench")
    rng = np.random.default_rng(0)
    for shard in range(2):
        with TarWriter(made / f"p-{shard}.tar") as writer:
            for number in range(COUNT // 2):
                file = io.BytesIO()
                Image.fromarray(rng.integers(0, 255, (20 + number % 3, 24, 3), dtype=np.uint8)).save(file, "png")
                writer.write({"__key__": f"{shard}-{number}", "png": file.getvalue(), "cls": number})
    for name in ("p.parquet", "p.arrow", "p.tfrecord"):
        assert shell(f"shoal convert 'p-{{0..1}}.tar' {name}", made).returncode == 0
    return made


def numbers(line: str, folder: Path) -> dict[str, Any]:
    done = shell(line, folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("url", ["'p-{0..1}.tar'", "p-0.tar p-1.tar", "p.parquet", "p.arrow", "p.tfrecord"])
def test_each_format_is_read_decoded_and_delivered(folder: Path, url: str) -> None:
    found = numbers(f"shoal bench --json --seconds 30 -b 32 {url}", folder)
    assert [stage["stage"] for stage in found["stages"]] == ["read", "decode", "deliver"]
    for stage in found["stages"]:
        assert (stage["samples"], stage["complete"]) == (COUNT, True)
        assert stage["samples_per_second"] == pytest.approx(COUNT / stage["seconds"])
        assert stage["cpu_per_sample"] >= 0
        assert stage["bottleneck"]
        assert stage["advice"]
    assert found["stages"][-1]["advice"] in found["bottleneck"]


def test_rates_are_those_of_stored_bytes(folder: Path) -> None:
    found = numbers("shoal bench --json --seconds 30 -p 2 'p-{0..1}.tar'", folder)
    for stage in found["stages"]:
        each = stage["megabytes_per_second"] / stage["samples_per_second"]
        assert each == pytest.approx(
            found["stages"][0]["megabytes_per_second"] / found["stages"][0]["samples_per_second"]
        )
        assert 1e6 * each > 20 * 24  # pictures of noise, and nothing of what they are decoded to
        assert 1e6 * each < 2 * 24 * 24 * 3


def test_time_ends_a_stage() -> None:
    dataset = from_arrays(x=np.zeros((100_000, 8)))
    found = list(measured(dataset, Trial(seconds=0.02, workers=0, batch_size=8)))
    assert not found[0].complete
    assert all(0 < each.statistics.samples < 100_000 for each in found if not each.complete)


def test_a_table_shows_the_stages(folder: Path) -> None:
    done = shell("shoal bench --seconds 0.05 -f 'png;jpg' 'p-{0..1}.tar'", folder)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    for word in ("read", "and decode", "and shuffle, batch", "samples/s", "MB/s", "CPU", "bottleneck: "):
        assert word in text


def test_samples_with_other_fields_are_told_how_to_go_on(tmp_path: Path) -> None:
    with TarWriter(tmp_path / "a.tar") as writer:
        for number in range(10):
            writer.write({"__key__": f"{number}", "cls": number, **({"txt": "x"} if number == 7 else {})})
    done = shell("shoal bench a.tar", tmp_path)
    assert done.returncode == 1
    assert b"name those that have them with -f" in done.stderr
    assert shell("shoal bench -f cls a.tar", tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ("-", 2, "comes only once"),
        ("p-0.tar p.parquet", 2, "one format at a time"),
        ("missing.tar", 1, "missing.tar"),
        ("x.xyz", 2, "does not tell what kind"),
        ("empty.tar", 2, "there are no samples"),
    ],
)
def test_misuse_is_told_in_a_line(folder: Path, arguments: str, code: int, text: str) -> None:
    with TarWriter(folder / "empty.tar"):
        pass
    done = shell(f"shoal bench {arguments}", folder)
    assert done.returncode == code
    assert text in done.stderr.decode()
    assert b"Traceback" not in done.stderr
