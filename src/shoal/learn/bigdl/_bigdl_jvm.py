"""The Java process of BigDL, as the guest has it that drives it: Spark on this machine, without a word."""

from __future__ import annotations

import atexit
import importlib
import io
import logging
import os
import pickle
import subprocess
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import PlanError, WorkerDiedError
from shoal.settings import environment, set_environment

__all__ = ["Jvm"]

#: What Java may make of bytes that are said to be the state of an optimizer; all else is refused.
_STATES = (
    "com.intel.analytics.bigdl.dllib.optim.*;com.intel.analytics.bigdl.dllib.tensor.*;"
    "com.intel.analytics.bigdl.dllib.utils.*;com.intel.analytics.bigdl.dllib.keras.optimizers.*;"
    "scala.collection.**;scala.reflect.*;scala.runtime.*;java.lang.*;java.util.*;!*"
)
#: Nobody reads what Java writes, unless it dies.
_LOGGING = """
rootLogger.level = error
rootLogger.appenderRef.file.ref = errors
appender.errors.type = Console
appender.errors.name = errors
appender.errors.target = SYSTEM_ERR
appender.errors.layout.type = PatternLayout
appender.errors.layout.pattern = %p %c: %m%n
"""
#: Variables that are about the user's own Spark, which is another one.
_OTHERS = (
    "BIGDL_CLASSPATH",
    "BIGDL_JARS",
    "HADOOP_CONF_DIR",
    "JAVA_TOOL_OPTIONS",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_GATEWAY_SECRET",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CLASSPATH",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
)
_TAIL = 2000
_PATIENCE = 10.0  # seconds for what is about to end by itself


class Jvm:
    """A Java process with Spark and BigDL; everything that is asked of it goes through here."""

    def __init__(self, cores: int, memory: str, folder: str) -> None:
        logging.disable(logging.CRITICAL)  # BigDL writes long lines about errors that are raised anyway
        warnings.simplefilter("ignore")
        self._log = Path(folder) / "java.log"
        settings = Path(folder) / "log4j2.properties"
        settings.write_text(_LOGGING)
        java = f"-Dlog4j2.configurationFile={settings.as_uri()} -Djava.io.tmpdir={folder}"
        options = {
            "spark.master": f"local[{cores}]",
            "spark.app.name": "shoal",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": memory,
            "spark.driver.extraJavaOptions": java,
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.ui.enabled": "false",
        }
        set_environment(environment({}, {"SPARK_LOCAL_IP": "127.0.0.1"}, _OTHERS))
        with redirect_stdout(io.StringIO()), _silenced(self._log):
            context: Any = importlib.import_module("bigdl.dllib.nncontext")
            conf = context.init_spark_conf(options)
            self._context = context.init_nncontext(conf, spark_log_level="ERROR", redirect_spark_log=False)
        atexit.register(self.close)
        self._common: Any = importlib.import_module("bigdl.dllib.utils.common")

    @property
    def names(self) -> Any:
        """Classes of Java, by their packages."""
        return self._context._jvm

    def close(self) -> None:
        """End Java at once: all that it has written is in the folder, which goes, too."""
        self._context._gateway.proc.kill()
        self._context._gateway.proc.wait()

    @contextmanager
    def asked(self, what: str) -> Iterator[None]:
        """Say plainly what goes wrong in the block, and whether there is still somebody to ask."""
        try:
            with redirect_stdout(io.StringIO()):
                yield
        except Exception as error:
            cause = getattr(error, "java_exception", None)
            is_lost = isinstance(error, ConnectionError) or (cause is None and type(error).__name__.startswith("Py4J"))
            code = self._code(is_lost=is_lost)
            if code is not None:
                text = f"the Java process of BigDL has died (exit code {code}) in {what}"
                raise WorkerDiedError(f"{text}: {self._last()}") from None
            if cause is None:
                raise
            raise PlanError(f"BigDL fails in {what}: {_reason(cause)}") from None

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function that BigDL has for Python."""
        return self._common.callBigDlFunc("float", name, *arguments)

    def loads(self, value: Any) -> Any:
        """Make objects of Java of those of Python, however many there are."""
        return self.names.org.apache.spark.bigdl.api.python.BigDLSerDe.loads(bytearray(pickle.dumps(value, 2)))

    def distributed(self, rows: Any) -> Any:
        """Give a list of Java to Spark."""
        return self._context._jsc.parallelize(rows, 1)  # one part, which BigDL's threads share, keeps its order

    def seeded(self, seed: int) -> None:
        """Let random numbers of this thread begin anew."""
        self._common.RNG().set_seed(seed)

    def cached(self, collection: Any) -> Any:
        """Give what the only part of a collection holds in memory, itself and not a copy."""
        place = self.names.org.apache.spark.storage.RDDBlockId(collection.id(), 0)
        store = self.names.org.apache.spark.SparkEnv.get().blockManager().memoryStore()
        return store.getValues(place).get().next()

    def packed(self, value: Any) -> bytes:
        """Make bytes of an object of Java."""
        return bytes(self.names.org.apache.commons.lang3.SerializationUtils.serialize(value))

    def unpacked(self, data: bytes) -> Any:
        """Make an optimizer of bytes, and of nothing else."""
        java = self.names.java.io
        stream = java.ObjectInputStream(java.ByteArrayInputStream(bytearray(data)))
        stream.setObjectInputFilter(java.ObjectInputFilter.Config.createFilter(_STATES))
        return stream.readObject()

    def copied(self, value: Any) -> Any:
        """Copy an object of Java."""
        return self.names.org.apache.commons.lang3.SerializationUtils.clone(value)

    def rows(self, features: Sequence[Any], labels: Sequence[Any]) -> Any:
        """Make a list of BigDL's samples of arrays."""
        make = self._common.Sample.from_ndarray
        columns = zip(zip(*features, strict=True), zip(*labels, strict=True), strict=True)
        return self.loads([make([*map(np.asarray, x)], [*map(np.asarray, y)]) for x, y in columns])

    def _code(self, *, is_lost: bool) -> int | None:
        """Give the exit code of Java, if it has ended, or is just about to."""
        process = self._context._gateway.proc
        with suppress(subprocess.TimeoutExpired):
            return int(process.wait(_PATIENCE if is_lost else 0))
        return None

    def _last(self) -> str:
        """Give the end of what Java had to say."""
        try:
            text = self._log.read_text(errors="replace")[-_TAIL:].strip()
        except OSError:
            text = ""
        return text.rpartition("\n")[2] or "it said nothing"


@contextmanager
def _silenced(log: Path) -> Iterator[None]:
    """Let what is started in the block write to a file."""
    ours = os.dup(1), os.dup(2)
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        for number, saved in zip((1, 2), ours, strict=True):
            os.dup2(saved, number)
            os.close(saved)


def _reason(error: Any) -> str:
    """Find out what it was that went wrong first, and say it in a line."""
    while error.getCause() is not None:
        error = error.getCause()
    text = str(error.getMessage() or error.toString())
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    return lines[-1] if lines else str(error.toString())
