"""A Spark session for the pipeline, whose Python workers can import this package and whose logs are quiet."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping
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
    start = _SessionStart(master, settings)
    session = start.wait(stop)
    try:
        yield session
    finally:
        if session is not None:
            session.stop()


class _SessionStart:
    """A session that is being started on a thread."""

    def __init__(self, master: str, settings: Mapping[str, str]) -> None:
        self._master = master
        self._settings = settings
        self._lock = threading.Lock()
        self._is_ready = threading.Event()
        self._is_unwanted = False
        self._session: SparkSession | None = None
        self._failure: Exception | None = None
        threading.Thread(target=self._run, name="pipeline-session", daemon=True).start()

    def wait(self, stop: threading.Event) -> SparkSession | None:
        """Return the session; None if `stop` is set first. Raises the error of the start."""
        while not self._is_ready.wait(_POLL_S):
            with self._lock:
                if stop.is_set() and not self._is_ready.is_set():
                    self._is_unwanted = True
                    return None
        if self._failure is not None:
            raise self._failure
        return self._session

    def _run(self) -> None:
        session: SparkSession | None = None
        try:
            session = start_session(self._master, self._settings)
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self._failure = error
        with self._lock:
            self._session = session
            self._is_ready.set()
        if self._is_unwanted and session is not None:
            session.stop()
