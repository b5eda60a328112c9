"""tf.data over TFRecord, tuned as its performance guide says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.constants import BATCH, MEAN, RATIO, SCALE, SIDE, STD, WORKERS

_FEATURES = {"jpg": tf.io.FixedLenFeature([], tf.string), "cls": tf.io.FixedLenFeature([], tf.int64)}


def _decode(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Decode only the crop, as its operators can."""
    sample = tf.io.parse_single_example(record, _FEATURES)
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(sample["jpg"]),
        tf.zeros([1, 0, 4], tf.float32),
        area_range=SCALE,
        aspect_ratio_range=RATIO,
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
        min_object_covered=0.0,
    )
    window = tf.concat([begin[:2], size[:2]], 0)
    picture = tf.image.decode_and_crop_jpeg(sample["jpg"], window, channels=3, dct_method="INTEGER_FAST")
    picture = tf.image.resize(picture, (SIDE, SIDE))
    picture = (tf.image.random_flip_left_right(picture) - MEAN) / STD
    return tf.transpose(picture, (2, 0, 1)), sample["cls"]


def images(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Interleave shards, shuffle a buffer of 1,000, decode in two threads, batch ahead."""
    yield from _records(folder, 1000).map(_decode, num_parallel_calls=WORKERS).batch(BATCH).prefetch(2)


def small(folder: Path) -> Iterator[Any]:
    """Interleave shards, shuffle a buffer of 1,000, batch ahead; one copy of a batch's strings into numpy."""
    for batch in _records(folder, 1000).batch(256).prefetch(tf.data.AUTOTUNE):
        yield batch.numpy()


def _records(folder: Path, buffer: int) -> tf.data.Dataset:
    options = tf.data.Options()
    options.threading.private_threadpool_size = WORKERS
    options.deterministic = False
    paths = sorted(str(path) for path in folder.glob("*.tfrecord"))
    files = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths))
    records = files.interleave(
        lambda path: tf.data.TFRecordDataset(path, buffer_size=1 << 20),
        cycle_length=len(paths),
        block_length=16,
        num_parallel_calls=WORKERS,
    )
    return records.shuffle(buffer).with_options(options)
