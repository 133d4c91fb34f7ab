"""The Python that Spark starts for its workers: the same one, without Spark's zipped PySpark where ours serves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tidewire.pipeline

SCRIPT = Path(tidewire.pipeline.__file__).parent / "worker-python"
ZIPS = "/opt/spark/python/lib/pyspark.zip:/opt/spark/python/lib/py4j-0.10.9.9-src.zip"


def path_of_worker(packages: Path, path: str) -> str:
    environment = {"TIDEWIRE_PYTHON": sys.executable, "TIDEWIRE_PACKAGES": str(packages), "PYTHONPATH": path}
    code = "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1], sep='|')"
    answer = subprocess.run(
        [SCRIPT, "-S", "-c", code, "a  b*"],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    found, _, argument = answer.stdout.rstrip("\n").partition("|")
    assert argument == "a  b*"
    return found


@pytest.mark.parametrize("kept", ["", "/a", "/a b/*:/c", "/x/pyspark.zip.d:/y"])
def test_worker_leaves_the_zipped_pyspark_out_where_pyspark_is_installed(tmp_path: Path, kept: str) -> None:
    for package in ("pyspark", "py4j"):
        (tmp_path / package).mkdir()
    assert path_of_worker(tmp_path, f"{ZIPS}:{kept}" if kept else ZIPS) == kept


@pytest.mark.parametrize("package", ["other", "pyspark"])
def test_worker_keeps_its_path_where_pyspark_is_not_wholly_installed(tmp_path: Path, package: str) -> None:
    (tmp_path / package).mkdir()
    assert path_of_worker(tmp_path, f"{ZIPS}:/a") == f"{ZIPS}:/a"
