"""The main job in one file: real pictures into shards, shards into the store, a model that two workers train.

Run it with `make demo`. The pictures are the 1,797 scanned digits that come with scikit-learn.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

import shoal
from shoal import store
from shoal.learn import Callback
from shoal.learn.metrics import Accuracy
from shoal.learn.pytorch import Estimator

EPOCHS = 8
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
        print(f"packed {len(chosen):5d} pictures into {len(writer.shards)} {part} shards", flush=True)


def to_input(sample: shoal.abc.Sample) -> shoal.abc.Sample:
    """Make the float input of the network from a grey picture."""
    return {"x": sample["png"][None].astype(np.float32) / 255, "y": sample["cls"]}


def keep(shelf: store.Store, shards: Path) -> store.ObjectID:
    """Decode the pictures of shards in parallel, and put them into shared memory, where every program finds them."""
    batches = list(shoal.read_tar(shards).decode("l8").map(to_input).loader(256))
    masks = [batch.get("__mask__", np.ones(len(batch["y"]), bool)) for batch in batches]
    arrays = {
        name: np.concatenate([batch[name][mask] for batch, mask in zip(batches, masks, strict=True)])
        for name in ("x", "y")
    }
    kept = shelf.put(arrays, persist=True)
    print(f"stored {sum(array.nbytes for array in arrays.values()) / 1e6:5.1f} MB as {kept}", flush=True)
    return kept


def network(config: dict[str, Any]) -> torch.nn.Module:
    """Build a small convolutional network."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 5, stride=2, padding=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 8 * 8, 10),
    )


def optimizer(model: torch.nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    """Build what makes the network better."""
    return torch.optim.Adam(model.parameters(), lr=config["lr"])


class Lines(Callback):
    """Tells of each epoch."""

    def after_epoch(self, epoch: int, stats: Any) -> None:
        """Print a line, on one of the workers."""
        if self.run.rank == 0:
            loss, accuracy = stats["train_loss"], stats["val_Accuracy"]
            print(f"epoch {epoch}/{EPOCHS}  {stats['num_samples']} pictures on {self.run.size} workers", end="  ")
            print(f"loss {loss:.3f}  test accuracy {accuracy:.1%}", flush=True)


def main() -> None:
    """Pack, process, store, train, predict."""
    shelf = store.connect()
    with tempfile.TemporaryDirectory() as name:
        pack(Path(name))
        train, test = (keep(shelf, Path(name, f"{part}-*.tar")) for part in ("train", "test"))
    estimator = Estimator.from_torch(
        model=network,
        optimizer=optimizer,
        loss=torch.nn.CrossEntropyLoss(),
        metrics=[Accuracy()],
        config={"lr": 2e-3},
        workers=2,
    )
    estimator.fit(train, epochs=EPOCHS, batch_size=BATCH, validation_data=test, callbacks=[Lines()])
    pictures = shelf.get(test)
    found = estimator.predict(pictures["x"]).argmax(axis=1)
    print(f"test accuracy: {np.mean(found == pictures['y']):.1%}")
    shelf.delete([train, test])


if __name__ == "__main__":
    main()
