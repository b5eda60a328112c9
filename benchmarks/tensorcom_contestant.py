"""Tensorcom, as a contestant: run by the Python of its environment, with ``send`` or ``receive`` and a URL."""

import json
import sys
import time

import numpy as np
import tensorcom

SHAPE, WARM_UP = (64, 3, 224, 224), 8


def send(url):
    """Send the same batch until standard input ends, or this process is."""
    batch = np.random.default_rng(0).normal(size=SHAPE).astype("f4")
    connection = tensorcom.Connection(url)
    while True:
        connection.send([batch])


def receive(url, count):
    """Take batches, and print what was seen."""
    connection = tensorcom.Connection(url)
    print("ready", flush=True)
    for _ in range(WARM_UP):
        connection.recv()
    size, cpu, begin = 0, time.process_time(), time.perf_counter()
    for _ in range(count):
        (batch,) = connection.recv()
        assert batch.shape == SHAPE
        assert batch.dtype == np.float32
        size += batch.nbytes
        batch[-1, -1, -1, -1]
    seconds, used = time.perf_counter() - begin, time.process_time() - cpu
    print(json.dumps({"batches": count, "bytes": size, "seconds": seconds, "cpu": used}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2])
    else:
        receive(sys.argv[2], int(sys.argv[3]))
