"""FFmpeg's libraries for SPDL, where the system has none: those inside the wheel of PyAV, under their own names.

The wheel names them with a checksum, ``libavutil-5809ad29.so.60.26.102``; SPDL asks for ``libavutil.so.60``.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path


def library_folder() -> Path:
    """Give a folder of this environment with links to them; it may hold none."""
    folder = Path(sys.prefix) / "lib" / "ffmpeg"
    folder.mkdir(exist_ok=True)
    for library in (Path(sysconfig.get_path("platlib")) / "av.libs").glob("lib*"):
        named = re.fullmatch(r"(lib(?:av|sw)\w+)-[0-9a-f]+(\.so\.\d+)\..*", library.name)
        if named and not (link := folder / "".join(named.groups())).is_symlink():
            link.symlink_to(library)
        if not (same := folder / library.name).is_symlink():
            same.symlink_to(library)  # they ask for each other by these names
    return folder
