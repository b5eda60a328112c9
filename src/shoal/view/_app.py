"""The routes of the page: its own files, what it asks for as JSON, and the pictures and sounds of samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from shoal.errors import SampleError, ShoalError
from shoal.view._pictures import File
from shoal.view._samples import Samples
from shoal.view._search import Query
from shoal.view._subject import Subject

__all__ = ["application"]

_PAGE = Path(__file__).parent / "page"
_MOST_TILES = 500
_EDGES = (32, 1024)
#: A picture of a sample does not change while the page is open; its address has a number of the visit.
_KEEP = {"cache-control": "private, max-age=86400, immutable"}
_FRESH = {"cache-control": "no-store"}


def application(subject: Subject) -> Starlette:
    """Make the application that shows a subject."""
    routes = [
        Route("/", _page),
        Route("/api/about", _json(lambda request: _about(subject))),
        Mount("/page", StaticFiles(directory=_PAGE)),
    ]
    if subject.samples is not None:
        routes += [*_grid_routes(subject.samples), *_overview_routes(subject.samples)]
    if subject.results is not None:
        routes.append(Mount("/results", routes=_grid_routes(subject.results)))
    if (plan := subject.plan) is not None:
        routes += [
            Route("/api/plan", _json(lambda request: plan.described())),
            Route("/api/plan/start", _post(lambda request: plan.start()), methods=["POST"]),
            Route("/api/plan/stop", _post(lambda request: plan.stop()), methods=["POST"]),
        ]
    if (runs := subject.runs) is not None:
        routes.append(Route("/api/runs", _json(lambda request: runs.described())))
    if (store := subject.store) is not None:
        routes.append(Route("/api/store", _json(lambda request: store.described())))
    return Starlette(routes=routes)


def _grid_routes(samples: Samples) -> list[Any]:
    """Give what a grid of samples asks for, and one sample in detail."""
    return [
        Route("/api/samples", _json(lambda request: _tiles(samples, request))),
        Route("/api/samples/{number:int}", _json(lambda request: samples.details(request.path_params["number"]))),
        Route("/thumbnail/{number:int}", _file(lambda request: _thumbnail(samples, request))),
        Route("/picture/{number:int}", _file(lambda request: _picture(samples, request))),
        Route("/media/{number:int}", _media(samples)),
        Route("/raw/{number:int}", _raw(samples)),
    ]


def _overview_routes(samples: Samples) -> list[Any]:
    """Give what is told of all samples together."""
    broken = samples.broken
    return [
        Route("/api/histograms", _json(lambda request: _histograms(samples, request))),
        Route("/api/histograms/stop", _post(lambda request: samples.stop_survey()), methods=["POST"]),
        Route("/api/broken", _json(lambda request: broken.described())),
        Route("/api/broken/start", _post(lambda request: broken.start_check()), methods=["POST"]),
        Route("/api/broken/stop", _post(lambda request: broken.stop_check()), methods=["POST"]),
    ]


def _page(request: Request) -> Response:
    return FileResponse(_PAGE / "index.html", headers=_FRESH)


def _about(subject: Subject) -> dict[str, Any]:
    samples = None if subject.samples is None else subject.samples.described()
    results = None if subject.results is None else subject.results.title
    return {"title": subject.title, "parts": subject.parts, "samples": samples, "results": results}


def _tiles(samples: Samples, request: Request) -> dict[str, Any]:
    asked = request.query_params
    count = min(int(asked.get("count", 60)), _MOST_TILES)
    query = Query(asked.get("key", ""), asked.get("where", ""))
    return samples.tiles(query, max(int(asked.get("start", 0)), 0), count, int(asked.get("after", -1)))


def _histograms(samples: Samples, request: Request) -> dict[str, Any]:
    survey = samples.survey(whole=request.query_params.get("whole") == "1")
    survey.job.wait(survey.job.ticks, 0.3)
    return survey.described()


def _thumbnail(samples: Samples, request: Request) -> File:
    asked = request.query_params
    edge = min(max(int(asked.get("edge", 192)), _EDGES[0]), _EDGES[1])
    return samples.thumbnail(request.path_params["number"], asked["field"], edge)


def _picture(samples: Samples, request: Request) -> File:
    asked = request.query_params
    return samples.picture(request.path_params["number"], asked["field"], asked.get("as", "picture"))


def _json(answer: Callable[[Request], Any]) -> Callable[[Request], Response]:
    def answered(request: Request) -> Response:
        return _told(lambda: JSONResponse(answer(request), headers=_FRESH))

    return answered


def _post(act: Callable[[Request], None]) -> Callable[[Request], Response]:
    def acted(request: Request) -> dict[str, bool]:
        act(request)
        return {"done": True}

    return _json(acted)


def _file(make: Callable[[Request], File]) -> Callable[[Request], Response]:
    def answered(request: Request) -> Response:
        def made() -> Response:
            try:
                file = make(request)
            except SampleError:
                return Response(status_code=204, headers=_FRESH)  # a broken picture is no fault of the page
            return Response(file.data, media_type=file.type, headers=_KEEP)

        return _told(made)

    return answered


def _media(samples: Samples) -> Callable[[Request], Response]:
    """Send sound and films, also in pieces, without which a player cannot seek."""

    def answered(request: Request) -> Response:
        def made() -> Response:
            file = samples.media(request.path_params["number"], request.query_params["field"])
            return _piece(file, request.headers.get("range", ""))

        return _told(made)

    return answered


def _piece(file: File, asked: str) -> Response:
    headers = {**_KEEP, "accept-ranges": "bytes"}
    begin, _, end = asked.removeprefix("bytes=").partition("-")
    if not asked.startswith("bytes=") or not begin.isdigit() or int(begin) >= len(file.data):
        return Response(file.data, media_type=file.type, headers=headers)
    first, last = int(begin), min(int(end), len(file.data) - 1) if end.isdigit() else len(file.data) - 1
    headers["content-range"] = f"bytes {first}-{last}/{len(file.data)}"
    return Response(file.data[first : last + 1], 206, media_type=file.type, headers=headers)


def _raw(samples: Samples) -> Callable[[Request], Response]:
    """Send the bytes of a field to be saved, never to be shown: nobody knows what they are."""

    def answered(request: Request) -> Response:
        number, field = request.path_params["number"], request.query_params["field"]
        name = "".join(letter if letter.isalnum() or letter in ".-_" else "_" for letter in f"{number}.{field}")
        headers = {**_FRESH, "content-disposition": f'attachment; filename="{name}"'}
        return _told(lambda: Response(samples.raw(number, field), 200, headers, "application/octet-stream"))

    return answered


def _told(answer: Callable[[], Response]) -> Response:
    """Answer, or say in JSON what went wrong."""
    try:
        return answer()
    except (ShoalError, IndexError, KeyError, ValueError, OSError) as error:
        text = str(error.args[0]) if error.args else str(error)
        return JSONResponse({"error": text}, 400, headers=_FRESH)
