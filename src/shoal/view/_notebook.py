"""Pictures of samples, batches and pipelines for notebooks, and words for terminals.

What is made is one piece of HTML with everything in it: no script, no file, nothing from elsewhere.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from shoal._array_picture import picture_of
from shoal.abc import Sample
from shoal.errors import PlanError, SampleError
from shoal.pipeline import Dataset, Loader
from shoal.pipeline.outline import Outline, outline
from shoal.shards.codecs import DecodeOptions
from shoal.view._cells import decimated, heat, rests
from shoal.view._details import is_like_a_picture
from shoal.view._looks import Look, as_array, fields_of, look_of
from shoal.view._pictures import small, written
from shoal.view._tiles import class_field_of, main_look, tile_of

__all__ = ["Picture", "plan_html", "show"]

_EDGE = 160
_POINTS = 60
_SHEET = Path(__file__).parent / "page" / "css" / "notebook.css"


class Picture:
    """Something that a notebook draws and a terminal prints.

    >>> Picture("<b>a fish</b>", "a fish")
    a fish
    """

    def __init__(self, html: str, text: str) -> None:
        self._html, self._text = html, text

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return self._text


def show(what: Any, n: int = 12) -> Picture:
    """Picture a dataset with its first samples, the first batch of a loader, a batch, a sample, or a list of these.

    In a notebook it is drawn; on a terminal it is a few lines of text.

    >>> import shoal
    >>> shoal.show(shoal.from_arrays({"x": range(3)}).map(dict), n=2)
    ArraySource(x[3]) -> map(dict)
    000000000  x 0
    000000001  x 1
    """
    plan = outline(what) if isinstance(what, Dataset) else None
    samples = _samples(what, n)
    drawn = "" if plan is None else _flow(plan)
    tiles = "".join(_figure(number, sample) for number, sample in enumerate(samples))
    words = [] if plan is None else [_line(plan)]
    words += [_words(sample) for sample in samples]
    return Picture(_framed(f'{drawn}<div class="tiles">{tiles}</div>'), "\n".join(words))


def plan_html(dataset: Dataset) -> str:
    """Draw a pipeline; nothing is read for that."""
    return _framed(_flow(outline(dataset)))


def _framed(html: str) -> str:
    return f'<style>{_SHEET.read_text()}</style><div class="shoal">{html}</div>'


def _samples(what: Any, n: int) -> list[Sample]:
    if isinstance(what, Dataset):
        with what.run() as run:
            return [row for found in islice(run, n) for row in _rows(found, n)][:n]
    if isinstance(what, Loader):
        return _rows(what.batch_at(0, 0), n)
    if isinstance(what, Mapping):
        return _rows(dict(what), n)
    if isinstance(what, Sequence) and all(isinstance(each, Mapping) for each in what):
        return [row for each in what[:n] for row in _rows(dict(each), n)][:n]
    raise PlanError(f"a {type(what).__name__} cannot be shown; give a Dataset, a Loader, a batch, or samples")


def _rows(found: Sample, n: int) -> list[Sample]:
    """Take a batch apart; a sample stays what it is."""
    keys = found.get("__key__")
    if isinstance(keys, str) or keys is None:
        return [{"__key__": "", **found}]
    mask = found.get("__mask__")
    real = [at for at in range(len(keys)) if mask is None or bool(mask[at])][:n]
    names = [name for name in fields_of(found) if hasattr(found[name], "__getitem__")]
    return [{"__key__": str(keys[at]), **{name: as_array(found[name][at]) for name in names}} for at in real]


def _flow(plan: Outline) -> str:
    nodes = []
    if plan.source is None:
        inner = "".join(f"<small>{share:g} &times;</small>{_flow(part)}" for share, part in _components(plan))
        nodes.append(f'<span class="node">mix{inner}</span>')
    else:
        nodes.append(_node(repr(plan.source), ""))
    nodes += [_node(stage.name, f"{stage.workers} workers" if stage.workers else "") for stage in plan.stages]
    if plan.shuffle:
        nodes.append(_node("shuffle", plan.shuffle))
    return f'<div class="flow">{"<span>&rarr;</span>".join(nodes)}</div>'


def _components(plan: Outline) -> list[tuple[float, Outline]]:
    return list(zip(plan.shares, plan.components, strict=True))


def _node(name: str, note: str) -> str:
    below = f"<small>{escape(note)}</small>" if note else ""
    return f'<span class="node">{escape(name)}{below}</span>'


def _line(plan: Outline) -> str:
    first = repr(plan.source)
    if plan.source is None:
        first = f"mix({', '.join(f'{share:g} of {_line(part)}' for share, part in _components(plan))})"
    shuffle = [f"shuffle({plan.shuffle})"] if plan.shuffle else []
    return " -> ".join([first, *(stage.name for stage in plan.stages), *shuffle])


def _figure(number: int, sample: Sample) -> str:
    options = DecodeOptions()
    field = class_field_of(sample, None)
    look = main_look(sample, options, field)
    tile = tile_of(number, sample, options, field)
    label = f"<b>{escape(tile['label'])}</b>" if "label" in tile else ""
    key = escape(str(tile["key"]))
    face = "" if look is None else _face(look, tile, options)
    return f'<figure><div class="face">{face}</div><figcaption>{label}{key}</figcaption></figure>'


def _face(look: Look, tile: Mapping[str, Any], options: DecodeOptions) -> str:
    try:
        if look.kind == "picture":
            return _image(small(look.name, look.value, _EDGE))
        if look.kind == "array" and "points" not in tile and look.value.dtype.kind in "iufb":
            array = np.asarray(look.value)
            return _image(picture_of(array) if is_like_a_picture(array) else heat(rests(array, _EDGE)))
    except SampleError as error:
        return f"<p>{escape(str(error))}</p>"
    if "points" in tile:
        return _spark(look.value)
    if "facts" in tile:
        return f"<p>{'<br>'.join(f'{escape(name)} <b>{escape(value)}</b>' for name, value in tile['facts'])}</p>"
    return f"<p>{escape(str(tile.get('text', f'{look.name}: {look.kind}')))}</p>"


def _image(image: Any) -> str:
    image.thumbnail((_EDGE, _EDGE))
    file = written(image)
    tiny = ' class="tiny"' if max(image.size) <= 64 else ""
    return f'<img{tiny} alt="" src="data:{file.type};base64,{base64.b64encode(file.data).decode()}">'


def _spark(values: Any) -> str:
    points = [(low, high) for low, high in decimated(values, _POINTS) if low is not None and high is not None]
    if not points:
        return ""
    least, most = min(low for low, _ in points), max(high for _, high in points)
    scale = 58 / ((most - least) or 1)
    places = [(at, high) for at, (_, high) in enumerate(points)] + [(at, low) for at, (low, _) in enumerate(points)][
        ::-1
    ]
    line = " ".join(f"{at},{59 - (value - least) * scale:.1f}" for at, value in places)
    size = max(len(points) - 1, 1)
    svg = f'<svg viewBox="0 0 {size} 60" preserveAspectRatio="none"><polygon points="{line}" stroke="#0b7fa5"'
    return f'{svg} vector-effect="non-scaling-stroke"/></svg>'


def _words(sample: Sample) -> str:
    options = DecodeOptions()
    looks = (look_of(name, sample[name], options) for name in fields_of(sample))
    return "  ".join([str(sample["__key__"]), *map(_word, looks)]).strip()


def _word(look: Look) -> str:
    if look.kind in ("number", "text"):
        text = str(look.value)
        return f"{look.name} {text[:40]}{'…' if len(text) > 40 else ''}"
    if look.kind == "array":
        return f"{look.name} {look.value.dtype} {'x'.join(map(str, look.value.shape))}"
    return f"{look.name} ({look.kind})"
