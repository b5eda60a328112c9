"""Build the documentation as a site: ``python docs/site/build.py build/docs``.

Pages are copied beside one another as they lie in the project, so a link that works in the tree works in the site. The
reference is made of docstrings, and is in the site alone.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from reference import write
from sphinx.cmd.build import build_main

ROOT = Path(__file__).parents[2]

#: What is in the site, beside the reference.
SOURCES = ("*.md", "docs/**/*.md", "docs/**/*.svg", "docs/**/*.png", "docs/*.json", "benchmarks/*.md")

#: Where somebody lands who opens the folder; all else lies as it does in the project.
DOOR = """<!doctype html>
<meta charset="utf-8">
<title>Shoal</title>
<meta http-equiv="refresh" content="0; url=docs/index.html">
"""


def main() -> int:
    """Build, and give the exit code: any warning is a failure."""
    parser = argparse.ArgumentParser(description="Build the documentation as a site.")
    parser.add_argument("out", type=Path, help="the folder for the site")
    out = parser.parse_args().out.resolve()
    source = out.with_name(f"{out.name}-source")
    stage(source)
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--conf-dir", str(Path(__file__).parent)]
    code = build_main([*options, "--doctree-dir", str(source / ".doctrees"), str(source), str(out)])
    (out / "index.html").write_text(DOOR)
    return code


def stage(folder: Path) -> None:
    """Put all sources of the site into one folder, and remove from it what is no source any more."""
    wanted = {path.relative_to(ROOT) for pattern in SOURCES for path in ROOT.glob(pattern)}
    for old in [path for kind in ("md", "svg", "png", "json") for path in folder.glob(f"**/*.{kind}")]:
        if old.relative_to(folder) not in wanted:
            old.unlink()
    for path in wanted:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, folder / path)
    write((ROOT / "tests" / "public_names.txt").read_text().split(), folder / "docs" / "reference")


if __name__ == "__main__":
    sys.exit(main())
