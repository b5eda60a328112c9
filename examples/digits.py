"""The main job in one file: real pictures into shards, shards into batches, batches into a model that reads digits.

Run it with `make demo`. The pictures are the 1,797 scanned digits that come with scikit-learn.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

import shoal

EPOCHS = 6
BATCH = 64


def pack(folder: Path) -> None:
    """Write the pictures as PNG files into tar shards, every fifth one for testing."""
    digits = load_digits()
    pictures = np.kron((digits.images * 255 / 16).astype(np.uint8), np.ones((4, 4), np.uint8))  # 8x8 to 32x32
    order = np.random.default_rng(0).permutation(len(pictures))
    for part, chosen in (("test", order[::5]), ("train", order[np.arange(len(order)) % 5 != 0])):
        with shoal.shards.ShardWriter(folder / f"{part}-%03d.tar", maxcount=200, index=True) as writer:
            for number in chosen:
                writer.write({"__key__": f"{number:05d}", "png": pictures[number], "cls": int(digits.target[number])})
        print(f"packed {len(chosen):5d} pictures into {len(writer.shards)} {part} shards")


def to_input(sample: shoal.abc.Sample) -> shoal.abc.Sample:
    """Make the float input of the network from a grey picture."""
    return {"image": sample["png"][None].astype(np.float32) / 255, "label": sample["cls"]}


def network() -> torch.nn.Module:
    """Build a small convolutional network."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 5, stride=2, padding=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 8 * 8, 10),
    )


def train(model: torch.nn.Module, loader: shoal.Loader) -> None:
    """Train for some epochs, telling how it goes."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(1, EPOCHS + 1):
        start, seen, total = time.perf_counter(), 0, 0.0
        for batch in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            loss.backward()
            optimizer.step()
            seen += len(batch["label"])
            total += loss.item() * len(batch["label"])
            progress(f"epoch {epoch}/{EPOCHS}  {seen:5d} pictures  loss {total / seen:.3f}", last=False)
        rate = seen / (time.perf_counter() - start)
        progress(
            f"epoch {epoch}/{EPOCHS}  {seen:5d} pictures  loss {total / seen:.3f}  {rate:,.0f} pictures/s", last=True
        )


def accuracy(model: torch.nn.Module, loader: shoal.Loader) -> float:
    """Count the right answers, each test picture once: padded rows are masked out."""
    right = total = 0
    with torch.no_grad():
        for batch in loader:
            real = batch.get("__mask__", torch.ones(len(batch["label"]), dtype=torch.bool))
            right += int(((model(batch["image"]).argmax(dim=1) == batch["label"]) & real).sum())
            total += int(real.sum())
    return right / total


def progress(text: str, *, last: bool) -> None:
    """Redraw one line on a terminal; in a log, write only the last."""
    if sys.stdout.isatty():
        print(f"\r{text:<70}", end="\n" if last else "", flush=True)
    elif last:
        print(text, flush=True)


def main() -> None:
    """Pack, read, train, test."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pack(folder)
        train_data = shoal.read_tar(folder / "train-*.tar").decode("l8").map(to_input).shuffle("full", seed=1)
        test_data = shoal.read_tar(folder / "test-*.tar").decode("l8").map(to_input)
        model = network()
        train(model, train_data.loader(BATCH, to="torch", end="drop"))
        print(f"test accuracy: {accuracy(model, test_data.loader(BATCH, to='torch')):.1%}")


if __name__ == "__main__":
    main()
