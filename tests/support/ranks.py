"""Real ranks: processes under torch.distributed, each running one function."""

from __future__ import annotations

import multiprocessing
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_LIMIT = 240.0


def run_ranks(function: Callable[..., Any], world_size: int, *arguments: Any) -> list[Any]:
    """Run a function on every rank of a world and give the results by rank; a rank that fails or hangs is an error."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", "shoal"])
    with tempfile.TemporaryDirectory() as folder:
        ends = [context.Pipe(duplex=False) for _ in range(world_size)]
        ranks = [
            context.Process(
                target=_run, args=(rank, world_size, folder, ends[rank][1], function, arguments), daemon=True
            )
            for rank in range(world_size)
        ]
        for process in ranks:
            process.start()
        try:
            return [_result(rank, receive) for rank, (receive, _) in enumerate(ends)]
        finally:
            for process in ranks:
                process.join(10)
                process.kill()


def _result(rank: int, receive: Connection) -> Any:
    assert receive.poll(_LIMIT), f"rank {rank} does not end"
    failed, value = receive.recv()
    assert not failed, f"rank {rank}: {value}"
    return value


def _run(
    rank: int, world_size: int, folder: str, send: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    from torch import distributed

    try:
        store = f"file://{Path(folder, 'store')}"
        limit = timedelta(seconds=_LIMIT)
        distributed.init_process_group("gloo", store, timeout=limit, rank=rank, world_size=world_size)
        value = function(*arguments)
        distributed.barrier()
        send.send((False, value))
    except BaseException:
        send.send((True, traceback.format_exc()))
    # The teardown of gloo sometimes aborts the process; what it had to say has been said.
