"""Tiny packages, made on the spot, so that pip has something to install without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path

from shoal.environments import Install, Recipe

__all__ = ["tiny_recipe", "tiny_toml", "wheel"]


def wheel(folder: Path, name: str, version: str, text: str = "") -> Path:
    """Write a wheel with one module that knows its version."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", f"__version__ = {version!r}\n{text}")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


def tiny_recipe(folder: Path, *, name: str = "tiny", version: str = "1.0", text: str = "") -> Recipe:
    """Describe an environment that holds one tiny package."""
    wheel(folder, "tinything", version, text)
    install = Install((f"tinything=={version}",), ("--no-index", "--find-links", str(folder)))
    return Recipe(name, "One tiny package", (install,), imports=("tinything",))


def tiny_toml(folder: Path, *, name: str = "tiny", version: str = "1.0", text: str = "") -> Path:
    """Write such a recipe as a file."""
    wheel(folder / "wheels", "tinything", version, text)
    path = folder / f"{name}.toml"
    lines = [
        'summary = "One tiny package"',
        'imports = ["tinything"]',
        "[[install]]",
        f'requirements = ["tinything=={version}"]',
        f'options = ["--no-index", "--find-links", "{folder / "wheels"}"]',
    ]
    path.write_text("\n".join(lines))
    return path
