"""Several batches under way at once, and what comes of them in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from numpy.typing import NDArray

from shoal.errors import PlanError
from shoal.learn.openvino._openvino_library import ov
from shoal.learn.openvino._openvino_options import OpenVINOOptions, allotted

__all__ = ["Requests"]


class Requests:
    """A compiled model, and the requests that its device works on; threads may use it together.

    They are waited for one after the other, and not by callbacks: so results are in order, and an error is raised for
    the batch that it is of.
    """

    def __init__(self, model: Any, options: OpenVINOOptions) -> None:
        properties = options.properties(allotted())
        try:
            self._compiled: Any = ov.Core().compile_model(model, options.device, properties)
        except RuntimeError as error:
            text = f"OpenVINO cannot compile the model for {options.device} with {properties}"
            raise PlanError(f"{text}: {error}") from error
        at_once = self._compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
        self._count = options.requests or 2 * at_once  # a stream finds the next one when it is done with one
        self._idle: deque[Any] = deque()
        self._outputs = range(len(self._compiled.outputs))

    def run(self, batches: Iterable[Sequence[NDArray[Any]]]) -> Iterator[list[NDArray[Any]]]:
        """Give the outputs for each batch, in order; no more batches are taken ahead than can be under way."""
        under_way: deque[tuple[Any, Sequence[NDArray[Any]]]] = deque()
        try:
            for arrays in batches:
                if len(under_way) == self._count:
                    yield self._ended(under_way)
                under_way.append((self._started(arrays), arrays))  # its memory is read until the request has ended
            while under_way:
                yield self._ended(under_way)
        finally:
            for request, _ in under_way:
                with suppress(RuntimeError):  # nobody asks for it any more, but it still reads its arrays
                    request.wait()

    def _started(self, arrays: Sequence[NDArray[Any]]) -> Any:
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._compiled.create_infer_request()
        for number, array in enumerate(arrays):
            request.set_input_tensor(number, ov.Tensor(array, shared_memory=True))
        request.start_async()
        return request

    def _ended(self, under_way: deque[tuple[Any, Sequence[NDArray[Any]]]]) -> list[NDArray[Any]]:
        """Wait for the oldest, and copy what came of it out of the memory that the next one will use."""
        request, arrays = under_way[0]
        try:
            request.wait()
        except RuntimeError as error:
            came = ", ".join(f"{array.shape} {array.dtype}" for array in arrays)
            raise PlanError(f"the model does not take inputs of {came}: {error}") from error
        finally:
            under_way.popleft()
        found = [request.get_output_tensor(number).data.copy() for number in self._outputs]
        self._idle.append(request)
        return found
