"""How fast, beside others. `make bench` runs everything in an environment that holds all peers, and writes RESULTS.md.

Quick looks, with the ``bin/python`` of that environment: ``-m benchmarks.loaders --only shoal,grain --count 1000
--rounds 2``, ``-m benchmarks.small``, ``-m benchmarks.memory``. Data is made once, under ``~/.cache/shoal-bench``.
"""
