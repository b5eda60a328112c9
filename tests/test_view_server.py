"""What the server of the viewer tells, and whom: kinds of data, conditions, ledgers, and nobody from elsewhere."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import shoal
from shoal import view
from shoal.errors import PlanError
from shoal.pipeline import Failure
from shoal.view._expression import parse
from shoal.view._search import Query
from shoal.view._subject import subject_of
from support.shell import shell
from support.view import BROKEN, write_samples


class Client:
    """One who has the link."""

    def __init__(self, served: view.View) -> None:
        self.served = served
        answer = self.ask(served.url.partition(str(served.port))[2], cookie="")
        assert answer.status == 303
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        self.set_cookie = answer.headers["set-cookie"]

    def ask(self, path: str, *, cookie: str | None = None, method: str = "GET", **headers: str) -> Any:
        line = http.client.HTTPConnection("127.0.0.1", self.served.port, timeout=60)
        own = {"Cookie": self.cookie if cookie is None else cookie, **headers}
        line.request(method, path, headers={name.replace("_", "-"): value for name, value in own.items() if value})
        answer = line.getresponse()
        answer.body = answer.read()  # type: ignore[attr-defined]
        line.close()
        return answer

    def get(self, path: str) -> Any:
        return json.loads(self.ask(path).body)

    def all_samples(self, base: str = "", **query: str) -> list[dict[str, Any]]:
        """Give the tiles of all that a query finds, once it is done."""
        asked = urlencode({"start": 0, "count": 100, **query})
        while not (told := self.get(f"{base}/api/samples?{asked}"))["done"]:
            time.sleep(0.02)
        found: list[dict[str, Any]] = told["tiles"]
        return found


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    write_samples(tmp_path, 30, maxcount=10)
    with view.serve(tmp_path) as served:
        yield Client(served)


def tiles(what: object, **options: Any) -> list[dict[str, Any]]:
    with view.serve(what, **options) as served:
        found: list[dict[str, Any]] = Client(served).get("/api/samples?start=0&count=3")["tiles"]
        return found


def test_who_does_not_know_the_token_sees_nothing(client: Client) -> None:
    assert client.ask("/api/about", cookie="").status == 403
    assert client.ask("/page/js/main.js", cookie="").status == 403
    assert client.ask("/?token=guess", cookie="").status == 403
    assert client.ask("/api/about", cookie=f"shoal-view-{client.served.port}=guess").status == 403


def test_the_cookie_is_for_this_page_alone(client: Client) -> None:
    assert {"HttpOnly", "SameSite=Strict"} <= set(client.set_cookie.split("; "))
    assert str(client.served.port) in client.cookie


def test_names_that_were_made_to_lead_here_are_refused(client: Client) -> None:
    assert client.ask("/api/about", Host=f"evil.example:{client.served.port}").status == 421
    assert client.ask("/api/about", Host="127.0.0.1").status == 421
    assert client.ask("/api/about", Host=f"localhost:{client.served.port}").status == 200


def test_other_sites_cannot_start_anything(client: Client) -> None:
    own = f"http://127.0.0.1:{client.served.port}"
    assert client.ask("/api/broken/start", method="POST", Origin="http://evil.example").status == 403
    assert client.ask("/api/broken/start", method="POST").status == 403
    assert client.ask("/api/broken/start", method="POST", Origin=own).status == 200


def test_answers_forbid_all_that_comes_from_elsewhere(client: Client) -> None:
    for path in ("/", "/api/about", "/raw/0?field=json", "/thumbnail/0?field=jpg"):
        answer = client.ask(path)
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert answer.headers["x-content-type-options"] == "nosniff"
    raw = client.ask("/raw/0?field=json")
    assert raw.headers["content-type"] == "application/octet-stream"
    assert raw.headers["content-disposition"].startswith("attachment")


def test_the_page_has_no_address_of_another_host() -> None:
    folder = Path(view.__file__).parent / "page"
    files = [path for path in folder.rglob("*") if path.suffix in (".js", ".css", ".html", ".svg")]
    found = {
        url
        for path in files
        for url in re.findall(r"(?:https?:)?//[\w.-]+\.\w+", re.sub(r"^\s*//.*", "", path.read_text(), flags=re.M))
    }
    assert found <= {"http://www.w3.org"}


@pytest.mark.parametrize("path", ["/page/../_guard.py", "/page/%2e%2e/_guard.py", "/page//etc/passwd"])
def test_no_file_but_those_of_the_page_is_sent(client: Client, path: str) -> None:
    assert client.ask(path).status == 404


def test_a_range_of_sound_is_sent_for_players_that_seek(client: Client) -> None:
    whole = client.ask("/media/0?field=wav")
    some = client.ask("/media/0?field=wav", Range="bytes=10-19")
    assert (some.status, some.body) == (206, whole.body[10:20])
    assert some.headers["content-range"] == f"bytes 10-19/{len(whole.body)}"


def test_a_field_that_is_not_there_is_said_in_words(client: Client) -> None:
    answer = client.ask("/picture/0?field=gif")
    assert (answer.status, json.loads(answer.body)) == (400, {"error": "sample 0 has no field gif"})
    assert client.ask("/api/samples/99").status == 400


def test_tables_are_shown_row_by_row(tmp_path: Path) -> None:
    frame = pd.DataFrame({"label": [1, 2, 3], "name": ["a", "b", "c"], "x": [0.5, 1.5, 2.5]})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "b.csv", index=False)
    frame.to_json(tmp_path / "c.jsonl", orient="records", lines=True)
    for name in ("a.parquet", "b.csv", "c.jsonl"):
        shown = tiles(tmp_path / name)
        assert [tile["label"] for tile in shown] == ["1", "2", "3"], name
        assert shown[1]["text"] == "b"


def test_a_folder_that_datasets_saved_is_shown_with_its_pictures(tmp_path: Path) -> None:
    import datasets

    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    pictures = [np.full((20, 30, 3), value, np.uint8) for value in (0, 128, 255)]
    rows = datasets.Dataset.from_dict({"image": pictures, "label": [0, 1, 0]}, features=features)
    rows.save_to_disk(tmp_path / "saved")
    shoal.export_parquet(rows, tmp_path / "exported")
    for folder in ("saved", "exported"):
        shown = tiles(tmp_path / folder)
        assert [(tile["kind"], tile["label"]) for tile in shown] == [
            ("picture", "0"),
            ("picture", "1"),
            ("picture", "0"),
        ]


def test_compressed_shards_are_shown(tmp_path: Path) -> None:
    with shoal.shards.TarWriter(tmp_path / "a.tar.gz") as writer:
        for number in range(3):
            writer.write({"__key__": str(number), "txt": f"text {number}"})
    assert [tile["text"] for tile in tiles(tmp_path / "a.tar.gz")] == ["text 0", "text 1", "text 2"]


@pytest.mark.parametrize(("share", "good"), [(0.0001, 0), (0.65, 26)])
def test_a_shard_that_breaks_off_is_told_and_shown_up_to_there(tmp_path: Path, share: float, good: int) -> None:
    write_samples(tmp_path, 80, maxcount=40)
    first = tmp_path / "train-000.tar"
    whole = first.read_bytes()
    first.write_bytes(whole[: int(len(whole) * share)])
    first.with_name("train-000.tar.index").unlink(missing_ok=True)
    expected = [*range(good), *range(40, 80)]
    with view.serve(tmp_path) as served:
        client = Client(served)
        shown = [tile["key"][-4:] for tile in client.all_samples()]
        assert shown == [f"{number:04d}" for number in expected]
        assert [tile["key"][-4:] for tile in client.all_samples(key="DOG")] == [key for key in shown if int(key) % 2]
        threes = [tile["key"][-4:] for tile in client.all_samples(where="cls == 3")]
        assert threes == [key for key in shown if int(key) % 5 == 3]
        (failure,) = client.get("/api/broken")["failures"]
        assert failure["shard"].endswith("train-000.tar")
        assert failure["number"] is None, "nothing is wrong with the samples that are shown"


def noisy(sample: Any, random: np.random.Generator) -> Any:
    return {**sample, "x": random.normal(size=5)}


def test_results_are_what_a_run_makes() -> None:
    dataset = shoal.from_arrays(x=np.arange(40)).map(noisy, random=True)
    with view.serve(dataset) as served:
        client = Client(served)
        told = [client.get(f"/results/api/samples/{number}") for number in (0, 7, 39)]
        assert client.get("/api/samples/7")["fields"][0]["text"] == "7", "what is read stays what it is"
    made = {sample["__key__"]: sample["x"].tolist() for sample in dataset}
    assert [one["fields"][0]["first"] for one in told] == [made[one["key"]] for one in told]


def is_no_three(sample: Any) -> bool:
    return bool(sample["cls"] != b"3")


def is_no_one(sample: Any) -> bool:
    return bool(sample["cls"] != 1)


def doubled(sample: Any) -> list[Any]:
    return [sample, sample] if sample["cls"] == 2 else [sample]


def test_results_tell_what_was_left_out_and_what_failed(tmp_path: Path) -> None:
    write_samples(tmp_path, 20, maxcount=10)
    read = shoal.read_tar(f"{tmp_path}/*.tar", fields=["jpg", "cls"])
    dataset = read.filter(is_no_three).decode().filter(is_no_one).flat_map(doubled).take(5)
    with view.serve(dataset) as served:
        client = Client(served)
        assert client.get("/api/about")["parts"] == ["samples", "results", "plan"]
        found = client.all_samples("/results")
        assert (found[0]["kind"], found[0]["label"]) == ("array", "0")
        assert client.ask("/results/thumbnail/0?field=jpg&edge=96").headers["content-type"].startswith("image/")
        filters = {1: "filter(is_no_one)", 3: "filter(is_no_three)"}
        assert {tile["number"]: tile["text"] for tile in found if tile["kind"] == "text"} == {
            number: f"left out by {filters[number % 5]}" for number in range(20) if number % 5 in filters
        }
        assert found[12]["key"] == "cat/0012 (first of 2)"
        assert found[BROKEN]["kind"] == "broken"
        assert found[BROKEN]["text"].startswith("DecodeError: field 'jpg'")
        assert [tile["number"] for tile in client.all_samples("/results", where="cls == 4")] == [4, 9, 14, 19]


def test_tensors_and_pictures_of_pillow_are_shown() -> None:
    def made(sample: Any) -> Any:
        grey = np.arange(256, dtype=np.uint8).reshape(16, 16)
        return {"__key__": sample["__key__"], "pil": Image.fromarray(grey), "tensor": torch.ones(3)}

    with view.serve(shoal.from_arrays(x=[1]).map(made)) as served:
        pil, tensor = Client(served).get("/results/api/samples/0")["fields"]
    assert (pil["draw"], pil["shape"]) == ("picture", [16, 16])
    assert (tensor["draw"], tensor["first"]) == ("line", [1.0, 1.0, 1.0])


def rested(sample: Any) -> Any:
    time.sleep(0.01)
    return sample


def test_a_search_that_goes_on_ends_with_the_page() -> None:
    subject = subject_of([shoal.from_arrays(x=np.arange(100_000)).map(rested)])
    assert subject.results is not None
    search = subject.results.searches.get(Query("", "x == 99_999"))
    subject.close()
    assert search.job.wait_until_done(60)
    assert search.job.stopped


def test_what_is_read_only_has_no_results() -> None:
    with view.serve(shoal.from_arrays(x=[1, 2])) as served:
        assert Client(served).get("/api/about")["parts"] == ["samples", "plan"]


def test_a_ledger_leads_to_its_samples(tmp_path: Path) -> None:
    write_samples(tmp_path, 20, maxcount=10)
    run = shoal.read_tar(f"{tmp_path}/*.tar", fields=["jpg", "cls"]).decode().run(on_error="skip", error_budget=5)
    assert len(list(run)) == 19
    run.ledger.save(tmp_path / "ledger.jsonl")
    with view.serve(tmp_path, failures=shoal.Ledger.load(tmp_path / "ledger.jsonl")) as served:
        (failure,) = Client(served).get("/api/broken")["failures"]
    assert (failure["key"], failure["number"]) == (f"dog/{BROKEN:04d}", BROKEN)
    assert failure["stage"] == "decode()"


def test_pickles_are_not_opened_unless_they_are_trusted(tmp_path: Path) -> None:
    with shoal.shards.TarWriter(tmp_path / "a.tar", trust=True) as writer:
        writer.write({"__key__": "a", "pkl": {"x": 1}})
    assert tiles(tmp_path / "a.tar")[0]["kind"] == "broken"
    assert tiles(tmp_path / "a.tar", trust=True)[0]["kind"] == "json"


def test_streams_and_nothing_are_refused() -> None:
    with pytest.raises(PlanError, match="read once"):
        view.serve("-")
    with pytest.raises(PlanError, match="nothing to look at"):
        view.serve()


def test_a_folder_of_other_files_is_told_how_they_are_packed(tmp_path: Path) -> None:
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "a.jpg").write_bytes(b"")
    with pytest.raises(PlanError, match="no shards and no tables; files of your own are packed by: shoal convert"):
        view.serve(tmp_path)


SAMPLE = {"cls": 3, "txt": "a Dog", "json": {"w": 640, "tags": ["x"]}, "seg.png": b"", "x": np.array([0.5, 2.0])}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("cls == 3", True),
        ("cls != 3", False),
        ("2 < cls <= 3 and json.w > 600", True),
        ("cls in [1, 2] or not cls == 4", True),
        ('"dog" in lower(txt)', True),
        ('txt.startswith("a ")', True),
        ("has(seg.png) and not has(other)", True),
        ("max(x) > 1 and len(x) == 2", True),
        ("json.w * 2 == 1280", True),
        ("'x' in json.tags", True),
        ("missing > 3", False),
        ("missing != 3", False),
        ("txt > 3", False),
        ("cls / 0 == 1", False),
        ("json.nothing.deeper == 1", False),
    ],
)
def test_conditions_hold_or_not_and_never_fail(text: str, holds: bool) -> None:
    assert parse(text)(SAMPLE) is holds


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "().__class__.__bases__[0].__subclasses__()",
        "(lambda: 1)()",
        "[x for x in y]",
        "cls := 3",
        "f'{cls}'",
        "2 ** 99",
        "cls ===",
        "a" * 2000,
        "(" * 300,
        "not " * 200 + "x",
        "open('x')",
    ],
)
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        parse(text)


def test_a_condition_cannot_fill_the_memory() -> None:
    assert parse("'a' * 9999999999 == txt")(SAMPLE) is False
    assert parse("[1] * 9999999999 == x")(SAMPLE) is False


def test_the_command_prints_a_link_and_ends_when_told(tmp_path: Path) -> None:
    write_samples(tmp_path, 3)
    program = "python -c 'from shoal.cli.view import run; run()' train-000.tar"
    done = shell(f"{program} > link & while [ ! -s link ]; do sleep 0.1; done; kill $!; wait $!", tmp_path)
    assert (tmp_path / "link").read_text().startswith("http://127.0.0.1:"), done.stderr


def test_a_batch_and_a_plan_are_pictures_of_their_own(tmp_path: Path) -> None:
    write_samples(tmp_path, 20)
    dataset = shoal.read_tar(f"{tmp_path}/*.tar")
    html = dataset.show(3)._repr_html_()
    assert html.count("<figure>") == 3
    assert "data:image/" in html
    assert "<script" not in html
    assert re.findall(r"(?:src|href)=\"(?!data:)", html) == []
    batch = next(iter(shoal.from_arrays(x=np.zeros((4, 16, 16, 3), np.uint8), label=np.arange(4)).loader(4)))
    assert shoal.show(batch)._repr_html_().count("data:image/png") == 4
    assert "read" not in shoal.from_arrays(x=np.arange(3))._repr_html_()


def test_text_in_samples_is_never_markup() -> None:
    html = shoal.show([{"__key__": "<script>", "txt": "<img src=x onerror=alert(1)>"}])._repr_html_()
    assert "<script>" not in html
    assert "<img src=x" not in html


def test_padding_of_a_batch_is_not_shown() -> None:
    batches = list(shoal.from_arrays(x=np.arange(5)).loader(4))
    assert len(repr(shoal.show(batches[-1])).splitlines()) == 1


def test_failures_that_are_known_come_with_the_view() -> None:
    failure = Failure("memory", "a", 1, "decode()", "DecodeError", "it ends")
    with view.serve(shoal.from_arrays(x=np.arange(3)), failures=[failure]) as served:
        assert Client(served).get("/api/broken")["failures"][0]["message"] == "it ends"
