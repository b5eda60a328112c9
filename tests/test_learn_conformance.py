"""One suite that every framework passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import pytest
import torch

import shoal
from shoal.learn import BaseEstimator
from shoal.testing import FrameworkTests
from support.engine import by_value

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # Keras, when it saves
]


@pytest.fixture(scope="module", autouse=True)
def _engine() -> Iterator[None]:
    with shoal.init("local", workers=2):
        yield


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__):
        yield


def torch_model(config: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 1)


def torch_sgd(model: torch.nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


class TestTorch(FrameworkTests):
    def estimator(self, **options: Any) -> BaseEstimator:
        from shoal.learn.pytorch import Estimator

        return Estimator.from_torch(
            model=torch_model, optimizer=torch_sgd, loss=torch.nn.MSELoss(), workers=2, restarts=0, **options
        )


def keras_model(config: dict[str, Any]) -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    return model


class TestKeras(FrameworkTests):
    def estimator(self, **options: Any) -> BaseEstimator:
        from shoal.learn.tf2 import Estimator

        return Estimator.from_keras(model_creator=keras_model, workers=2, restarts=0, **options)


class TestGraph(FrameworkTests):
    def estimator(self, **options: Any) -> BaseEstimator:
        import tensorflow as tf

        from shoal.learn.tf import Estimator

        with tf.Graph().as_default():
            x = tf.compat.v1.placeholder(tf.float32, (None, 4))
            y = tf.compat.v1.placeholder(tf.float32, (None, 1))
            slopes = tf.compat.v1.get_variable("w", (4, 1), initializer=tf.compat.v1.zeros_initializer())
            found = x @ slopes
            return Estimator.from_graph(
                inputs=x,
                outputs=found,
                labels=y,
                loss=tf.reduce_mean((found - y) ** 2),
                optimizer=tf.compat.v1.train.GradientDescentOptimizer(0.1),
                workers=2,
                restarts=0,
                **options,
            )


def mxnet_model(config: dict[str, Any]) -> Any:
    import mxnet as mx

    mx.random.seed(0)
    net = mx.gluon.nn.Dense(1, in_units=4)
    net.initialize(mx.init.Xavier())
    return net


def mxnet_loss(config: dict[str, Any]) -> Any:
    return lambda found, wanted: (found - wanted) ** 2


class TestMXNet(FrameworkTests):
    def estimator(self, **options: Any) -> BaseEstimator:
        from shoal.learn.mxnet import Estimator, create_config

        config = create_config(optimizer_params={"learning_rate": 0.1})
        made = {"model_creator": mxnet_model, "loss_creator": mxnet_loss, "num_workers": 2, "restarts": 0}
        return Estimator.from_mxnet(config=config, **made, **options)


@pytest.fixture(scope="class")
def bigdl_session(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the tests of a class share a Java process."""
    from shoal.learn.bigdl import Session

    with Session(cores=2) as session:
        request.cls.session = session
        yield


@pytest.mark.usefixtures("bigdl_session")
class TestBigDL(FrameworkTests):
    session: Any

    def estimator(self, **options: Any) -> BaseEstimator:
        from shoal.learn.bigdl import Estimator
        from shoal.learn.bigdl.nn.criterion import MSECriterion
        from shoal.learn.bigdl.nn.layer import Linear
        from shoal.learn.bigdl.optim.optimizer import SGD

        made = {"model": Linear(4, 1), "loss": MSECriterion(), "optimizer": SGD(learningrate=0.1)}
        return Estimator.from_bigdl(**made, session=self.session, **options)


class TestOpenVINO(FrameworkTests):
    trains = False

    def estimator(self, **options: Any) -> BaseEstimator:
        from shoal.learn.openvino import Estimator

        assert options.keys() <= {"model_dir"}
        return Estimator.from_torch(torch_model({}), example_input=torch.zeros(1, 4))
