"""Fixtures that start a real server, and the options of the long-running tests."""

from __future__ import annotations

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.orgs import Template, TestOrg, make_postgres_template, make_template, open_copy
from tests.postgres import PostgresServer, running_postgres
from tests.running import Rest
from tests.scratch import QUICK_JVM, scratch_root
from tidewire.delivery.hub import Hub
from tidewire.testing import ServerProcess

# The same examples in every run, so that a change alone can break one; `--hypothesis-profile search` tries new ones.
# How long an example takes says more about the machine than about the code.
_UNHURRIED = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("steady", _UNHURRIED, derandomize=True, database=None)
hypothesis.settings.register_profile("search", _UNHURRIED)
hypothesis.settings.load_profile("steady")

_constants_of_modules = providers._get_local_constants  # noqa: SLF001


def _constants() -> Constants:
    """Left alone, hypothesis also draws constants of those modules of ours that are loaded by then, and these depend on
    the tests that ran before.
    """
    is_steady = hypothesis.settings.get_current_profile_name() == "steady"
    return Constants() if is_steady else _constants_of_modules()


providers._get_local_constants = _constants  # noqa: SLF001

# Read by pytest when it makes the first directory; `--basetemp` goes before it.
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(scratch_root()))
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(QUICK_JVM))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=5, help="how often a crash test kills its server (5)")
    parser.addoption(
        "--operations", type=int, default=1500, help="how many changes a replica is put through (1500)"
    )
    parser.addoption(
        "--seed", type=int, default=None, help="the seed of random moments and choices (random, printed)"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long: begun last, one would run alone while the other worker has nothing to do."""
    patience_s: dict[Path, float] = defaultdict(float)
    for item in items:
        patience_s[item.path] = max(patience_s[item.path], _patience_s(item))
    items.sort(key=lambda item: -patience_s[item.path])


def _patience_s(item: pytest.Item) -> float:
    """How much more time than usual a test is given, which tells how long it takes about as well as anything."""
    given = item.get_closest_marker("timeout")
    usual_s = 180.0 if item.get_closest_marker("slow") is not None else 0.0
    return max(usual_s, float(given.args[0])) if given is not None and given.args else usual_s


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """gRPC's asyncio API decides: there is no other loop to support."""
    return "asyncio"


@pytest.fixture(scope="session")
def kills(pytestconfig: pytest.Config) -> int:
    """How often a crash test kills its server."""
    return int(pytestconfig.getoption("--kills"))


@pytest.fixture(scope="session")
def operations(pytestconfig: pytest.Config) -> int:
    """How many random changes a replica is put through."""
    return int(pytestconfig.getoption("--operations"))


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """The seed of this run's random choices."""
    given = pytestconfig.getoption("--seed")
    chosen = random.SystemRandom().randrange(1 << 31) if given is None else int(given)
    # Shown by pytest beside a failure, so that the run can be repeated.
    print(f"--seed {chosen}")  # noqa: T201
    return chosen


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that the whole run shares: use objects of your own names, and leave it running."""
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as process:
        yield process


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL that the whole run shares: take a schema of your own from it, and leave it running."""
    with running_postgres() as running:
        yield running


@pytest.fixture
def fresh_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of this test's own, on an empty directory."""
    with ServerProcess(tmp_path / "data") as process:
        yield process


@pytest.fixture
def dev_token(server: ServerProcess) -> str:
    """A session token of the development administrator on `server`."""
    return server.login()


@pytest.fixture
def rest(server: ServerProcess, dev_token: str) -> Iterator[Rest]:
    """REST calls to `server` as the development administrator."""
    client = Rest(server.http, dev_token)
    yield client
    client.close()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """What every `org` is a copy of."""
    return asyncio.run(make_template(tmp_path_factory.mktemp("template") / "org"))


@pytest.fixture(scope="session")
def postgres_template(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The org that `open_postgres_copy` copies."""
    return asyncio.run(make_postgres_template(postgres, tmp_path_factory.mktemp("template")))


@pytest.fixture
async def org(tmp_path: Path, template: Template) -> AsyncIterator[TestOrg]:
    """A development org of this test's own, without sockets."""
    async with open_copy(template, tmp_path / "org") as opened:
        yield opened


@pytest.fixture
async def hub(org: TestOrg) -> AsyncIterator[Hub]:
    """A hub that follows `org`."""
    opened = Hub(org.link)
    await opened.start()
    yield opened
    await opened.close()
