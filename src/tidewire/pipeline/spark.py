"""A Spark session for the pipeline, whose Python workers can import this package and whose logs are quiet."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidewire.errors import ConfigInvalid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
_POLL_S = 0.2
# Writes each offset with a plain rename: 18 ms a batch on a local disk, where the default manager takes 66.
CHECKPOINT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def check_java() -> None:
    """Raise ConfigInvalid, with instructions, unless a Java that Spark supports is installed."""
    home = os.environ.get("JAVA_HOME", "")
    java = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if java is None:
        where = f"under JAVA_HOME={home}" if home else "on the PATH"
        raise ConfigInvalid(
            f"the pipeline needs Java {OLDEST_JAVA} or newer, and there is no java {where}. Install a Java "
            "runtime (on Debian: openjdk-17-jre-headless) or point JAVA_HOME at one.",
            setting="JAVA_HOME",
        )
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = output.partition('"')[2].partition('"')[0].partition(".")[0].partition("-")[0]
    if version.isdigit() and int(version) < OLDEST_JAVA:
        raise ConfigInvalid(
            f"the pipeline needs Java {OLDEST_JAVA} or newer; {java} is version {version}",
            setting="JAVA_HOME",
        )


def _worker_python(packages: str) -> str:
    """Return what Spark starts as Python: our script, if PySpark is installed among this Python's packages."""
    script = os.path.join(os.path.dirname(os.path.realpath(__file__)), "worker-python")
    is_installed = packages in {os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    return script if is_installed and os.access(script, os.X_OK) else sys.executable


def start_session(master: str = "local[2]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the process's Spark session, starting it with our settings and the given ones if there is none.

    Takes some seconds the first time.
    """
    check_java()
    import pyspark
    from pyspark.sql import SparkSession

    from tidewire.pipeline.apply.bronze_source import BronzeSource
    from tidewire.pipeline.source.event_source import TidewireSource
    from tidewire.pipeline.source.records_source import RecordsSource

    # Workers must find this very package, installed or not.
    source_root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    paths = [source_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    # The runner of Python sources takes python3 from the PATH otherwise, which need not be ours.
    packages = os.path.dirname(os.path.dirname(os.path.realpath(pyspark.__file__)))
    os.environ["PYSPARK_PYTHON"] = _worker_python(packages)
    os.environ["TIDEWIRE_PYTHON"] = sys.executable
    os.environ["TIDEWIRE_PACKAGES"] = packages
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    log_settings = os.path.join(os.path.dirname(__file__), "log4j2.properties")
    builder = (
        SparkSession.builder.master(master)
        .appName("tidewire")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile=file:{log_settings}")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.scheduler.mode", "FAIR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
        .config("spark.sql.streaming.checkpointFileManagerClass", CHECKPOINT_MANAGER)
        # So that an idle archive says soon that it hears its server, or no longer does (see bronze_source.py).
        .config("spark.sql.streaming.noDataProgressEventInterval", "1000")
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        .config("spark.executorEnv.TIDEWIRE_PYTHON", os.environ["TIDEWIRE_PYTHON"])
        .config("spark.executorEnv.TIDEWIRE_PACKAGES", os.environ["TIDEWIRE_PACKAGES"])
    )
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.dataSource.register(TidewireSource)
    session.dataSource.register(BronzeSource)
    session.dataSource.register(RecordsSource)
    return session


@contextmanager
def open_session(
    master: str, settings: Mapping[str, str], spark: SparkSession | None, stop: threading.Event
) -> Iterator[SparkSession | None]:
    """Yield the caller's session, or a new one that is stopped at the end; None if `stop` came first.

    Starting Spark takes many seconds on a busy machine, and nothing interrupts it. So it runs on a thread
    that is abandoned on `stop`. On the main thread Spark would also take over the interrupt signal.
    """
    if spark is not None:
        yield spark
        return
    starting = _start_on_thread(master, settings)
    while not starting.done() and not (stop.is_set() and starting.cancel()):
        wait([starting], _POLL_S)
    session = None if starting.cancelled() else starting.result()
    try:
        yield session
    finally:
        if session is not None:
            session.stop()


def _start_on_thread(master: str, settings: Mapping[str, str]) -> Future[SparkSession]:
    """Start a session on a thread, which stops it again if the future was cancelled meanwhile."""
    started: Future[SparkSession] = Future()

    def run() -> None:
        try:
            session = start_session(master, settings)
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            if started.set_running_or_notify_cancel():
                started.set_exception(error)
            return
        # From here on the future can no longer be cancelled.
        if started.set_running_or_notify_cancel():
            started.set_result(session)
        else:
            session.stop()

    # Not an executor's: the process must not wait at its end for a start that nobody wants.
    threading.Thread(target=run, name="pipeline-session", daemon=True).start()
    return started
