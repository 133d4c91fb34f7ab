"""Every code block of README, tutorial and how-tos runs, against one server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import ROOT, RUN, SHOWN, Block, blocks_of, run_blocks
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]  # each command starts a program of its own

DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    *sorted((ROOT / "docs" / "clients").glob("*.md")),
]
# Something that can only have come from the server, for each document whose blocks print it.
SIGNS = {
    "README.md": "CREATE",
    "tutorial.md": "P-00001",
    "simple-salesforce.md": "20 contacts by the Bulk API",
    "jsforce.md": "Willow Paper",
    "cometd.md": "101",
    "emp-connector.md": "replayId",
    "pubsub-python.md": "102",
    "pubsub-node.md": "103",
}

_LONG_LIMIT_S = 400.0


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The server that all documents talk to."""
    with ServerProcess(tmp_path_factory.mktemp("documented") / "data") as server:
        yield server


def _quick(document: Path) -> bool:
    return any(b.language in RUN and not b.is_long and not b.runner for b in blocks_of(document))


@pytest.mark.clients
@pytest.mark.parametrize("document", [d for d in DOCUMENTS if _quick(d)], ids=lambda d: d.name)
def test_code_blocks_of_a_document_run_as_they_stand(
    documented: ServerProcess, document: Path, tmp_path: Path
) -> None:
    blocks = [b for b in blocks_of(document) if b.language in RUN and not b.is_long and not b.runner]
    assert SIGNS[document.name] in run_blocks(blocks, documented, tmp_path)


@pytest.mark.spark
@pytest.mark.timeout(480)
@pytest.mark.parametrize(
    "document", [d for d in DOCUMENTS if any(b.is_long for b in blocks_of(d))], ids=lambda d: d.name
)
def test_long_code_blocks_of_a_document_run_as_they_stand(
    documented: ServerProcess, document: Path, tmp_path: Path
) -> None:
    blocks = [b for b in blocks_of(document) if b.is_long]
    assert "archived" in run_blocks(blocks, documented, tmp_path, _LONG_LIMIT_S)


def test_server_of_the_tutorial_starts_as_it_stands(tmp_path: Path) -> None:
    (block,) = [
        b for b in blocks_of(ROOT / "docs" / "tutorial.md") if b.runner == "tests/wire/test_documents.py"
    ]
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    anywhere = {f"TIDEWIRE_{name}": "127.0.0.1:0" for name in ("HTTP", "HTTPS", "GRPC", "GRPC_TLS")}
    with subprocess.Popen(
        ["sh", "-euc", block.text],
        cwd=tmp_path,
        env={**os.environ, **anywhere, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as serving:
        try:
            assert serving.stdout is not None
            assert json.loads(serving.stdout.readline())["event"] == "ready"
            assert (tmp_path / "data" / "server" / "tls" / "ca.pem").exists()
        finally:
            os.killpg(serving.pid, signal.SIGTERM)


@pytest.mark.parametrize(
    "planted",
    [
        Block("sh", "tidewire query 'SELECT Nothing FROM Account'\n", ""),
        Block("sh", "tidewire get Account 001000000000000 | cat\n", ""),
        Block("sh", 'echo "$nowhere_set"\n', ""),
        Block("python", "assert 1 == 2\n", ""),
        Block("js", "process.exit(3);\n", ""),
        Block("java", "public class Wrong { public static void main(String[] a) { int x = ; } }\n", ""),
    ],
    ids=lambda block: block.language,
)
@pytest.mark.clients
def test_block_that_is_wrong_fails(documented: ServerProcess, planted: Block, tmp_path: Path) -> None:
    good = Block("sh", "tidewire login --url http://localhost:8080 --endpoint localhost:7011\n", "")
    with pytest.raises(AssertionError):
        run_blocks([good, planted, Block("sh", "true\n", "")], documented, tmp_path)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_every_block_is_run_or_only_shown(document: Path) -> None:
    for block in blocks_of(document):
        assert block.language in RUN | SHOWN
        assert not block.note or block.is_long or (ROOT / block.runner).is_file(), block.note
