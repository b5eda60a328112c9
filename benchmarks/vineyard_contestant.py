"""Vineyard, as a contestant: run by the Python of its environment, with the socket that its daemon is to have.

Each line on standard input asks for one round; what it took is printed.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import vineyard


def daemon(socket):
    """Start a daemon, and wait for it."""
    folder = os.path.dirname(vineyard.__file__)
    program = os.path.join(folder, "bdist", "vineyardd")
    program = program if os.path.exists(program) else os.path.join(os.path.dirname(sys.executable), "vineyardd")
    command = [program, f"--socket={socket}", "--meta=local", "--size=2Gi", "--rpc=false"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not os.path.exists(socket):
        time.sleep(0.05)
    return process


def large(client, size, times):
    """Put one array, get it several times, and forget it."""
    data = np.random.default_rng(0).random(size)
    begin = time.perf_counter()
    key = client.put(data)
    put = time.perf_counter() - begin
    gets = []
    for _ in range(times):
        begin = time.perf_counter()
        client.get(key)
        gets.append(time.perf_counter() - begin)
    client.delete([key])
    return put, statistics.median(gets)


def small(client, size, count):
    """Put and get arrays, and forget them."""
    data = np.random.default_rng(0).random(size)
    begin = time.perf_counter()
    keys = [client.put(data) for _ in range(count)]
    middle = time.perf_counter()
    for key in keys:
        client.get(key)
    end = time.perf_counter()
    client.delete(keys)
    return middle - begin, end - middle


def main():
    """Serve rounds until there is no more input."""
    process = daemon(sys.argv[1])
    try:
        client = vineyard.connect(sys.argv[1])
        for line in sys.stdin:
            what, size, count = line.split()
            one_round = {"large": large, "small": small}[what]
            print(json.dumps(one_round(client, int(size), int(count))), flush=True)
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
