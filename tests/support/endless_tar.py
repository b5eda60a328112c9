"""A tar that never ends, to standard output: ``endless_tar.py SIZE`` for samples of a large and a small field."""

from __future__ import annotations

import itertools
import sys

from shoal.shards._tar_format import Attributes, HeaderMaker


def main(size: int) -> None:
    headers, data, end = HeaderMaker(Attributes()), bytes(size + -size % 512), bytes(508)
    for number in itertools.count():
        sys.stdout.buffer.write(headers.header(f"{number}.bin", size) + data)
        sys.stdout.buffer.write(headers.header(f"{number}.cls", 4) + b"%04d" % (number % 1000) + end)


if __name__ == "__main__":
    main(int(sys.argv[1]))
