"""Models of OpenVINO predict for data of any kind, any number of rows, wherever the data is."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pandas as pd
import pytest
import torch
from openvino import opset13 as ops
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import shoal
from shoal.data import XShards
from shoal.errors import PlanError, StateError, UrlNotFoundError
from shoal.learn import _predicting
from shoal.learn.metrics import MSE, Accuracy
from shoal.learn.openvino import Estimator
from shoal.learn.openvino._openvino_framework import OpenVINOFramework
from shoal.store import ObjectID, connect
from support.clusters import running
from support.engine import run_script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def table(rows: int, columns: int = 3) -> np.ndarray[Any, Any]:
    return np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)


def doubling(batch: int = -1, columns: int = 3, dtype: Any = np.float32) -> ov.Model:
    x = ops.parameter([batch, columns], dtype, name="x")
    return ov.Model([ops.add(x, x)], [x], "doubling")


def stubborn(batch: int = 4) -> ov.Model:
    """Sums of pairs, by way of a shape in which the number of rows is written down."""
    x = ops.parameter([batch, 6], np.float32, name="x")
    pairs = ops.reshape(x, ops.constant(np.array([batch, 3, 2])), False)
    return ov.Model([ops.reduce_sum(pairs, ops.constant(np.array([2])), False)], [x], "stubborn")


def cutting() -> ov.Model:
    """Two outputs of different width, which together are the input."""
    x = ops.parameter([-1, 5], np.float32, name="x")
    cut = ops.variadic_split(x, ops.constant(np.array(1)), ops.constant(np.array([2, 3])))
    return ov.Model([cut.output(0), cut.output(1)], [x], "cutting")


def adding(inputs: int = 3, columns: int = 128) -> ov.Model:
    """Several inputs, whose sum goes through two weights."""
    given = [ops.parameter([5, columns], np.float32, name=f"in{number}") for number in range(inputs)]
    total: Any = given[0]
    for each in given[1:]:
        total = ops.add(total, each)
    return ov.Model([ops.matmul(total, ops.constant(np.ones((columns, 2), np.float32)), False, False)], given, "adding")


def of(model: ov.Model, **options: Any) -> Estimator:
    return Estimator.from_openvino(model_path=model, **options)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, str]:
    """A convolution with 1000 classes, and its file, which takes four pictures at a time."""
    torch.manual_seed(1)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(32, 1000),
    ).eval()  # fmt: skip
    path = str(tmp_path_factory.mktemp("models") / "classifier.xml")
    Estimator.from_torch(module, example_input=torch.zeros(4, 3, 16, 16), input=[(4, 3, 16, 16)]).save(path)
    return module, path


def pictures(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(count).random((count, 3, 16, 16), dtype=np.float32)


def classes(module: nn.Module, images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        found: np.ndarray[Any, Any] = module(torch.from_numpy(images)).numpy()
    return found


def test_a_file_predicts_for_arrays_and_shards(tmp_path: Path) -> None:
    """As the guide has it: rows lie along the first axis, so each of the 20 is four pictures."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv3d(4, 2, (3, 28, 28), stride=(1, 28, 28)), nn.Flatten())
    model_path = tmp_path / "model.xml"
    Estimator.from_torch(module, example_input=torch.zeros(1, 4, 3, 224, 224)).save(model_path)

    est = Estimator.from_openvino(model_path=model_path)
    input_data = np.random.random([20, 4, 3, 224, 224])
    result = est.predict(input_data)
    shards = XShards.partition({"x": input_data})
    result_shards = est.predict(shards)

    with torch.no_grad():
        wanted = module(torch.from_numpy(input_data).float()).numpy()
    assert result.shape == (20, 128)
    np.testing.assert_allclose(result, wanted, atol=1e-5)
    parts = result_shards.collect()
    assert isinstance(result_shards, XShards)
    assert all(sorted(part) == ["prediction", "x"] for part in parts)
    np.testing.assert_allclose(np.concatenate([part["prediction"] for part in parts]), wanted, atol=1e-5)


def test_missing_and_broken_files_are_refused_with_words(tmp_path: Path) -> None:
    with pytest.raises(UrlNotFoundError, match=r"there is no model at .*nowhere\.xml; give the path of an \.xml file"):
        Estimator.from_openvino(model_path=tmp_path / "nowhere.xml")
    path = of(adding()).save(tmp_path / "model.xml")
    (tmp_path / "model.bin").rename(tmp_path / "other.bin")
    with pytest.raises(UrlNotFoundError, match=r"the weights of .*model\.xml are missing: there is no .*model\.bin"):
        Estimator.from_openvino(model_path=path)
    (tmp_path / "text.xml").write_text("no model")
    (tmp_path / "text.bin").write_bytes(b"")
    with pytest.raises(StateError, match=r"text\.xml is no model that OpenVINO"):
        Estimator.from_openvino(model_path=tmp_path / "text.xml")
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(StateError, match=r"text\.onnx is no model that OpenVINO"):
        Estimator.from_openvino(model_path=tmp_path / "text.onnx")
    with pytest.raises(PlanError, match=r"model_path=None; give the path of an \.xml file"):
        Estimator.from_openvino(model_path=None)


def test_any_number_of_rows_in_any_batch_size(classifier: tuple[nn.Module, str]) -> None:
    """23 pictures for a model that was made for four at a time."""
    module, path = classifier
    estimator, images = Estimator.from_openvino(model_path=path), pictures(23)
    for batch_size in (1, 4, 5, 23, 100):
        found = estimator.predict(images, batch_size=batch_size)
        assert found.shape == (23, 1000)
        np.testing.assert_allclose(found, classes(module, images), atol=1e-5)
    assert estimator.predict(images[:0]).shape == (0, 1000)


def test_shards_smaller_and_larger_than_a_batch(classifier: tuple[nn.Module, str]) -> None:
    module, path = classifier
    images = pictures(20)
    shards = XShards.from_shards([{"x": images[:4]}, {"x": images[4:7]}, {"x": images[7:20]}])
    parts = Estimator.from_openvino(model_path=path).predict(shards, batch_size=4).collect()
    assert [part["prediction"].shape for part in parts] == [(4, 1000), (3, 1000), (13, 1000)]
    found = np.concatenate([part["prediction"] for part in parts])
    np.testing.assert_allclose(found, classes(module, images), atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 3, 4, 7, 32])
def test_a_model_that_insists_on_its_batch_gets_it_filled_up(batch_size: int) -> None:
    x = table(11, 6)
    wanted = x.reshape(11, 3, 2).sum(axis=2)
    estimator = of(stubborn())
    assert (estimator.predict(x, batch_size=batch_size) == wanted).all()
    assert estimator.predict(x[:0], batch_size=batch_size).shape == (0, 3)
    parts = estimator.predict(XShards.partition({"x": x}, 3), batch_size=batch_size).collect()
    assert (np.concatenate([part["prediction"] for part in parts]) == wanted).all()


def test_models_without_rows_are_refused() -> None:
    x = ops.parameter([3, 4], np.float32, name="x")
    total = ov.Model([ops.reduce_sum(x, ops.constant(np.array([0, 1])), False)], [x])
    with pytest.raises(PlanError, match=r"a row of each output for each row of its inputs.*takes x \[3,4\]"):
        of(total)
    number = ops.parameter([], np.float32, name="n")
    with pytest.raises(PlanError, match="input 'n' of the model is one number, and has no place for rows"):
        of(ov.Model([ops.relu(number)], [number]))
    y = ops.parameter([-1, 2], np.float32, name="y")
    flat = ov.Model([ops.reshape(y, ops.constant(np.array([-1])), False)], [y])
    with pytest.raises(PlanError, match=r"of shape \(6,\) for 3 rows; there has to be one row for each"):
        of(flat).predict(table(3, 2))


def test_several_inputs_come_in_their_order() -> None:
    """Three inputs of (32, 128), and a model that was made for five rows at a time."""
    inputs = [np.random.default_rng(number).random((32, 128), dtype=np.float32) for number in range(3)]
    wanted = np.repeat(sum(inputs).sum(axis=1, keepdims=True), 2, axis=1)  # type: ignore[attr-defined]
    estimator = of(adding())
    found = estimator.predict(inputs, batch_size=5)
    assert found.shape == (32, 2)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    first = ops.parameter([-1, 2], np.float32, name="z")
    second = ops.parameter([-1, 2], np.float32, name="a")
    minus = of(ov.Model([ops.subtract(first, second)], [first, second]))
    assert (minus.predict((table(3, 2), np.ones((3, 2)))) == table(3, 2) - 1).all()
    frame = pd.DataFrame({"p": list(table(3, 2)), "q": list(np.ones((3, 2), np.float32))})
    both = minus.predict(frame, feature_cols=["p", "q"])
    assert (np.stack(both["prediction"]) == table(3, 2) - 1).all()


def test_several_outputs_come_as_a_list_or_under_their_names() -> None:
    x = table(7, 5)
    estimator = of(cutting())
    found = estimator.predict(x, batch_size=3)
    assert [each.shape for each in found] == [(7, 2), (7, 3)]
    assert (np.concatenate(found, axis=1) == x).all()
    named = estimator.predict(x, output_cols=["left", "right"])
    assert (named["right"] == x[:, 2:]).all()
    parts = estimator.predict(XShards.partition({"x": x}, 2), output_cols=["left", "right"]).collect()
    assert all(list(part) == ["x", "left", "right"] for part in parts)
    frame = estimator.predict(pd.DataFrame({"x": list(x)}), feature_cols=["x"], output_cols=["left", "right"])
    assert np.stack(frame["left"]).tolist() == x[:, :2].tolist()
    with pytest.raises(PlanError, match="the model has 2 outputs, and output_cols names 1"):
        estimator.predict(x, output_cols=["left"])


def test_numbers_are_converted_where_they_stay_what_they_are() -> None:
    estimator = of(doubling())
    for dtype in (np.float64, np.float16, np.int64, np.uint8, np.bool_):
        found = estimator.predict(np.ones((2, 3), dtype))
        assert found.dtype == np.float32
        assert (found == 2).all()
    whole = of(doubling(dtype=np.int32))
    assert whole.predict(np.full((2, 3), 7)).tolist() == [[14] * 3] * 2
    with pytest.raises(PlanError, match=r"the model takes x: rows of \(3,\) int32; what came are rows of \(3,\) float"):
        whole.predict(table(2))
    with pytest.raises(PlanError, match=r"there are numbers from 0 to 4294967296, which int32 cannot hold"):
        whole.predict(np.array([[0, 1, 2**32]]))
    column = of(doubling(columns=1)).predict(pd.DataFrame({"a": [1.0, 2.0]}), feature_cols=["a"])
    assert np.concatenate(column["prediction"].tolist()).tolist() == [2.0, 4.0]


def test_wrong_shapes_and_numbers_of_inputs_are_refused_with_words() -> None:
    with pytest.raises(PlanError, match=r"the model takes x: rows of \(3,\) float32; what came are rows of \(2, 4\)"):
        of(doubling()).predict(np.zeros((5, 2, 4), np.float32))
    with pytest.raises(PlanError, match=r"the model has 1 inputs \(x: rows of \(3,\) float32\), and the data has 2"):
        of(doubling()).predict([table(4), table(4)])
    with pytest.raises(PlanError, match=r"belong together row by row, and there are of in0 4, in1 3 rows"):
        of(adding(2, 3)).predict([table(4), table(3)])
    with pytest.raises(PlanError, match=r"the model takes x: rows of \(3,\)"):
        of(doubling()).predict(XShards.partition({"x": np.zeros((4, 2))}, 2)).collect()


def test_other_kinds_of_data_are_refused_with_a_list_of_those_that_are_taken() -> None:
    for data in ("text", 3, object()):
        with pytest.raises(PlanError, match=r"no way to predict for a .*; data may be arrays, .*XShards, a Dataset"):
            of(doubling()).predict(data)


def test_models_do_not_learn() -> None:
    with pytest.raises(PlanError, match="models of OpenVINO do not learn"):
        of(doubling()).fit((table(4), table(4)), epochs=2, batch_size=2)


def test_an_evaluation_has_metrics_and_no_loss() -> None:
    x = table(21)
    estimator = of(doubling(), metrics=[MSE()], workers=2)
    assert estimator.evaluate((x, 2 * x - 3), batch_size=4) == {"num_samples": 21, "MSE": 9.0}
    labels = np.full(21, 2)
    labels[:7] = 0
    found = estimator.evaluate(XShards.partition({"x": x, "y": labels}, 3), validation_metrics=[Accuracy()])
    assert found == {"num_samples": 21, "Accuracy": pytest.approx(14 / 21)}
    with pytest.raises(PlanError, match="an evaluation without a loss needs metrics"):
        of(doubling()).evaluate((x, x))


def test_data_of_all_kinds_comes_back_as_what_it_was() -> None:
    import datasets
    import tensorflow as tf

    x, estimator = table(10), of(doubling())
    assert (estimator.predict({"x": x, "y": 1})["prediction"] == 2 * x).all()
    assert (estimator.predict(torch.from_numpy(x)) == 2 * x).all()
    frame = estimator.predict(pd.DataFrame({"a": list(x)}, index=range(5, 15)), feature_cols=["a"], batch_size=3)
    assert (np.stack(frame["prediction"]) == 2 * x).all()
    assert frame.index.tolist() == [*range(5, 15)]
    stored = estimator.predict(connect().put({"x": x}))
    assert isinstance(stored, ObjectID)
    (part,) = XShards.from_store(stored).collect()
    assert (part["prediction"] == 2 * x).all()
    samples = list(estimator.predict(shoal.from_arrays(x=x, n=np.arange(10)), batch_size=4))
    assert [int(sample["n"]) for sample in samples] == [*range(10)]
    assert all((sample["prediction"] == 2 * sample["x"]).all() for sample in samples)
    rows = estimator.predict(datasets.Dataset.from_dict({"x": x.tolist()}), feature_cols=["x"], batch_size=4)
    assert np.asarray(rows["prediction"][:]).tolist() == (2 * x).tolist()
    loader = DataLoader(TensorDataset(torch.from_numpy(x), torch.arange(10)), batch_size=4)
    assert (estimator.predict(loader) == 2 * x).all()
    assert (estimator.predict(tf.data.Dataset.from_tensor_slices(x)) == 2 * x).all()


def test_what_was_given_stays_as_it_was() -> None:
    x = ops.parameter([-1, 3], np.float32, name="x")
    estimator = of(ov.Model([ops.relu(ops.negative(x))], [x]))
    given = table(40)
    kept = given.copy()
    found = estimator.predict(given, batch_size=8)
    assert (given == kept).all()
    given.setflags(write=False)
    assert (estimator.predict(given, batch_size=8) == found).all()
    assert (estimator.predict(given[:, ::-1], batch_size=8) == 0).all()


def test_many_batches_under_way_come_back_in_order() -> None:
    estimator, x = of(doubling(), requests=7), table(1001)
    assert (estimator.predict(x, batch_size=1) == 2 * x).all()
    shards = XShards.from_shards([{"x": x[at : at + 7]} for at in range(0, 1001, 7)])
    parts = estimator.predict(shards, batch_size=2).collect()
    assert (np.concatenate([part["prediction"] for part in parts]) == 2 * x).all()


def test_no_more_batches_are_taken_ahead_than_can_be_under_way() -> None:
    taken = []

    def batches() -> Iterator[list[Any]]:
        for number in range(50):
            taken.append(number)
            yield [np.full((2, 3), number, np.float32)]

    framework = of(doubling(), requests=3)._framework
    for number, found in enumerate(framework.predict_many(batches())):
        assert (found == 2 * number).all()
        assert len(taken) <= number + 4
    assert len(taken) == 50
    some = framework.predict_many(batches())
    next(some)
    some.close()  # type: ignore[attr-defined]
    assert (framework.predict([table(4)]) == 2 * table(4)).all(), "what was under way is left behind"


def test_a_bad_batch_is_told_and_the_next_prediction_works() -> None:
    framework = of(doubling())._framework
    batches = [[table(4)]] * 5 + [[np.zeros((4, 2))]] + [[table(4)]] * 5
    with pytest.raises(PlanError, match=r"what came are rows of \(2,\)"):
        list(framework.predict_many(batches))
    x = ops.parameter([-1, -1], np.float32, name="x")
    loose = of(ov.Model([ops.matmul(x, ops.constant(np.ones((3, 2), np.float32)), False, False)], [x]))
    with pytest.raises(PlanError, match=r"rows of \(5,\) do not go through the model"):
        loose.predict(table(4, 5))
    assert loose.predict(table(4)).shape == (4, 2)
    loose.shutdown()
    assert loose.predict(table(4)).shape == (4, 2), "it is compiled again"
    y = ops.parameter([-1, 2], np.float32, name="y")
    pairs = of(ov.Model([ops.reshape(y, ops.constant(np.array([-1, 4])), False)], [y]))
    with pytest.raises(PlanError, match=r"the model does not take inputs of \(3, 2\) float32"):
        pairs.predict(table(3, 2))


def test_threads_may_predict_together() -> None:
    estimator = of(doubling(), requests=2)
    wrong: list[int] = []

    def work(number: int) -> None:
        x = np.full((300, 3), number, np.float32)
        wrong.extend([number] if (estimator.predict(x, batch_size=2) != 2 * number).any() else [])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_process_compiles_a_model_once() -> None:
    with shoal.init("local", workers=2, mode="thread"):
        estimator, shards = of(doubling()), XShards.partition({"x": table(8)}, 4)
        estimator.predict(shards).collect()
        (first,) = _predicting._MODELS.items()
        estimator.predict(shards).collect()
        (second,) = _predicting._MODELS.items()
    assert first[0] == estimator._framework.number
    assert second[1] is first[1]


def test_workers_of_a_machine_share_its_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines tell each worker how many threads it may have; a user's own word goes before."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for config, threads in (({}, 1), ({"INFERENCE_NUM_THREADS": 2}, 2)):
        framework = of(doubling(), config=config)._framework
        framework.build()
        assert framework._requests is not None
        assert framework._requests._compiled.get_property("INFERENCE_NUM_THREADS") == threads


def test_options_are_checked_and_reach_openvino() -> None:
    framework = of(doubling(), hint="latency", config={"NUM_STREAMS": 1})._framework
    framework.build()
    assert framework._requests is not None
    assert "LATENCY" in str(framework._requests._compiled.get_property("PERFORMANCE_HINT")).upper()
    with pytest.raises(PlanError, match="hint='speed'; known are None, 'throughput', 'latency'"):
        of(doubling(), hint="speed")
    with pytest.raises(PlanError, match="precision='int8'; known are None, 'f32', 'f16', 'bf16'"):
        of(doubling(), precision="int8")
    with pytest.raises(PlanError, match="requests=0; at least one batch has to be under way"):
        of(doubling(), requests=0)
    with pytest.raises(PlanError, match=r"OpenVINO cannot compile the model for CPU with .*NO_SUCH"):
        of(doubling(), config={"NO_SUCH": 1}).predict(table(2))
    with pytest.raises(PlanError, match="OpenVINO cannot compile the model for NOWHERE"):
        of(doubling(), device="NOWHERE").predict(table(2))


def test_files_that_save_wrote_open_in_plain_openvino_and_here(tmp_path: Path) -> None:
    inputs = [np.ones((4, 3), np.float32)] * 2
    estimator = of(adding(2, 3))
    assert estimator.save(tmp_path / "kept") == str(tmp_path / "kept.xml")
    plain = ov.Core().compile_model(ov.Core().read_model(tmp_path / "kept.xml"), "CPU")
    assert plain([each[:1].repeat(5, 0) for each in inputs])[0].tolist() == [[6.0, 6.0]] * 5
    estimator.save("memory://openvino/model.xml")
    other = of(doubling())
    assert other.predict(table(2)).shape == (2, 3)
    other.load("memory://openvino/model.xml")
    assert other.predict(inputs).tolist() == [[6.0, 6.0]] * 4
    assert [port.get_any_name() for port in other.get_model().inputs] == ["in0", "in1"]
    assert OpenVINOFramework(estimator._framework.dump()).predict(inputs).tolist() == [[6.0, 6.0]] * 4


def test_a_torch_module_predicts_the_same_and_stays_what_it_was() -> None:
    torch.manual_seed(2)
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    images = pictures(9)
    estimator = Estimator.from_torch(module, example_input=torch.zeros(1, 3, 16, 16))
    assert all(each.training for each in module.modules())
    np.testing.assert_allclose(estimator.predict(images), classes(module.eval(), images), atol=1e-5)
    with pytest.raises(PlanError, match=r"rows of \(3, 16, 16\) float32; what came are rows of \(3, 8, 8\)"):
        estimator.predict(images[:, :, :8, :8])
    free = Estimator.from_torch(module, example_input=torch.zeros(1, 3, 16, 16), input=[(-1, 3, -1, -1)])
    small = np.ascontiguousarray(images[:, :, :8, :8])
    np.testing.assert_allclose(free.predict(small), classes(module, small), atol=1e-5)
    with pytest.raises(PlanError, match="the module cannot be made a model of OpenVINO"):
        Estimator.from_torch(module, example_input=torch.zeros(1, 7, 16, 16))
    with pytest.raises(PlanError, match=r"the model is 3, and no torch\.nn\.Module"):
        Estimator.from_torch(3, example_input=torch.zeros(1))


class Fours(nn.Module):
    """Differences of two inputs, for four rows and no other number."""

    def forward(self, z: Any, a: Any) -> Any:
        return (z - a).reshape(4, 3, 2).sum(-1)


def test_a_torch_module_with_several_inputs_and_a_batch_of_its_own() -> None:
    z, a = table(10, 6), np.ones((10, 6), np.float32)
    wanted = (z - a).reshape(10, 3, 2).sum(axis=2)
    examples = torch.zeros(4, 6), torch.zeros(4, 6)
    for example in (examples, {"z": examples[0], "a": examples[1]}):
        found = Estimator.from_torch(Fours(), example_input=example).predict((z, a), batch_size=3)
        assert (found == wanted).all()


def test_a_model_of_keras_predicts_the_same_with_inputs_and_outputs_in_their_order(tmp_path: Path) -> None:
    import keras

    keras.utils.set_random_seed(0)
    first, second = keras.Input((4,), name="z"), keras.Input((6,), name="a")
    joined = keras.layers.Concatenate()([keras.layers.Dense(5, activation="relu")(first), second])
    outputs = [keras.layers.Dense(width)(joined) for width in range(1, 13)]
    model = keras.Model([first, second], outputs)
    inputs = [np.random.default_rng(0).random((7, width), dtype=np.float32) for width in (4, 6)]
    found = Estimator.from_keras(model).predict(inputs, batch_size=3)
    for one, other in zip(found, model.predict(inputs, verbose=0), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    single = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    single.export(tmp_path / "saved", verbose=False)
    read = Estimator.from_openvino(model_path=tmp_path / "saved")
    np.testing.assert_allclose(read.predict(inputs[0]), single.predict(inputs[0], verbose=0), atol=1e-5)


def quantized(weights: np.ndarray[Any, Any]) -> ov.Model:
    """A layer as quantizers write it: whole numbers for weights, and inputs on a grid of 256 steps."""
    scale = np.abs(weights).max() / 127
    x = ops.parameter([-1, len(weights)], np.float32, name="x")
    low, high = ops.constant(np.float32(-4)), ops.constant(np.float32(4))
    inputs = ops.fake_quantize(x, low, high, low, high, 256)
    whole = ops.constant(np.round(weights / scale).astype(np.int8))
    floats = ops.multiply(ops.convert(whole, np.float32), ops.constant(np.float32(scale)))
    return ov.Model([ops.matmul(inputs, floats, False, False)], [x], "quantized")


def test_int8_models_compute_with_whole_numbers_and_are_close(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weights, x = random.normal(size=(64, 16)).astype(np.float32), random.normal(size=(50, 64)).astype(np.float32)
    path = of(quantized(weights)).save(tmp_path / "int8.xml")
    assert (tmp_path / "int8.bin").stat().st_size < weights.nbytes / 2
    estimator = Estimator.from_openvino(model_path=path)
    found = estimator.predict(x, batch_size=8)
    assert np.abs(found - x.clip(-4, 4) @ weights).max() < 0.5
    requests = estimator._framework._requests
    assert requests is not None
    ran = requests._compiled.get_runtime_model().get_ops()
    kinds = {node.get_rt_info()["runtimePrecision"].astype(str) for node in ran if "MatMul" in node.friendly_name}
    assert kinds & {"i8", "u8"}


def test_bf16_is_close_and_asked_for(classifier: tuple[nn.Module, str]) -> None:
    module, path = classifier
    images = pictures(12)
    found = Estimator.from_openvino(model_path=path, precision="bf16").predict(images)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, classes(module, images), atol=1e-2)
    x = ops.parameter([-1, 3], ov.Type.bf16, name="x")
    native = of(ov.Model([ops.add(x, x)], [x]), precision="bf16")
    assert native.predict(table(4)).tolist() == (2 * table(4)).tolist(), "numpy has 32 bits for bfloat16"


def test_results_larger_than_memory_stream_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,200 predictions of 400 kB each: written as they come, they never lie in memory together."""
    monkeypatch.setenv("SHOAL_MEMORY", "50MB")
    program = """
    import json, resource, sys
    import numpy as np, openvino as ov
    from openvino import opset13 as ops
    import shoal
    from shoal.learn.openvino import Estimator

    x = ops.parameter([-1, 1], np.float32, name="x")
    wide = ov.Model([ops.tile(x, ops.constant(np.array([1, 100_000])))], [x])
    rows = shoal.from_arrays(x=np.arange(1200, dtype=np.float32)[:, None])
    found = Estimator.from_openvino(model_path=wide).predict(rows, batch_size=8, output_cols=["out.npy"])
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    found.take(200).select("out.npy").write_tar(f"{sys.argv[1]}/small-%d.tar")
    before = peak()
    found.select("out.npy").write_tar(f"{sys.argv[1]}/all-%d.tar")
    print(json.dumps({"grown": peak() - before}))
    """
    done = run_script(program, arguments=[str(tmp_path)], seconds=250)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["grown"] < 150
    back = shoal.read_tar(f"{tmp_path}/all-*.tar").decode()
    assert [float(sample["out.npy"][-1]) for sample in back] == [*map(float, range(1200))]


@pytest.fixture(scope="module", params=["spark", "dask", "ray"])
def cluster(request: pytest.FixtureRequest) -> Iterator[str]:
    with running(request.param, workers=2):
        yield request.param


def collection(engine: str, frame: pd.DataFrame, parts: int) -> Any:
    if engine == "spark":
        from pyspark.sql import SparkSession

        return SparkSession.active().createDataFrame(frame.to_dict("records")).repartition(parts)
    if engine == "dask":
        import dask.dataframe

        with dask.config.set({"dataframe.convert-string": False}):  # it would make texts of lists
            return dask.dataframe.from_pandas(frame, npartitions=parts)
    import ray.data

    return ray.data.from_pandas([frame.iloc[number::parts] for number in range(parts)])


def as_frame(found: Any) -> Any:
    if hasattr(found, "toPandas"):
        return pd.DataFrame([row.asDict() for row in found.collect()])
    if hasattr(found, "take_all"):
        return pd.DataFrame(found.take_all())
    return shoal.engines.current().client.compute(found).result()  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_a_model_goes_to_where_the_data_is(cluster: str, tmp_path: Path) -> None:
    """18 rows in 3 parts, each more than a batch, and in 5; workers never see the file of the model."""
    path = Path(of(stubborn()).save(tmp_path / "model.xml"))
    estimator = Estimator.from_openvino(model_path=path)
    path.unlink()
    path.with_suffix(".bin").unlink()
    x = table(18, 6)
    frame = pd.DataFrame({"n": np.arange(18), "x": x.tolist()})
    for parts in (3, 5):
        data = collection(cluster, frame, parts)
        found = estimator.predict(data, batch_size=4, feature_cols=["x"])
        assert type(found) is type(data)
        rows = as_frame(found).sort_values("n")
        assert rows["n"].tolist() == [*range(18)]
        assert np.stack(rows["prediction"].tolist()).tolist() == x.reshape(18, 3, 2).sum(axis=2).tolist()
    shards = estimator.predict(XShards.partition({"x": x}, 4), batch_size=4).collect()
    assert np.concatenate([part["prediction"] for part in shards]).tolist() == x.reshape(18, 3, 2).sum(axis=2).tolist()


def test_nobody_is_told_that_it_is_used() -> None:
    program = """
import sys
from shoal.learn.openvino import Estimator
from openvino.tools.ovc import telemetry_utils
print(telemetry_utils.tm.__name__, "openvino_telemetry" in sys.modules)
"""
    done = run_script(program)
    assert done.stdout.split() == ["openvino.tools.ovc.telemetry_stub", "False"], done.stderr
