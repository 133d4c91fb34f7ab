"""`python -m tidewire.testing`: run a controlled server in its own process, for tests in any language.

Takes the settings of `tidewire serve` as flags and prints the same ready line, with `control` and `token` added. The
data directory must not exist yet, or belong to an earlier test server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import uvloop

from tidewire.config import Settings, load_settings
from tidewire.errors import ConfigInvalid
from tidewire.telemetry import configure_logging
from tidewire.testing.controlled import ControlledServer
from tidewire.testing.template_org import TemplateOrg, ensure_template_org

_MARK = "tidewire-test-server"


async def serve(settings: Settings, template: TemplateOrg) -> int:
    """Run until SIGTERM or SIGINT; return the exit status."""
    server = ControlledServer(settings, template)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        sys.stdout.write(json.dumps(await server.start()) + "\n")
        sys.stdout.flush()
        waits = [asyncio.create_task(event.wait()) for event in (stop, server.failed)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    finally:
        await server.close()
    return int(server.failed.is_set())


def _clear(directory: Path) -> None:
    """Create the directory, or empty it if a test server created it. Raises ConfigInvalid otherwise."""
    if directory.exists() and any(directory.iterdir()):
        if not (directory / _MARK).exists():
            raise ConfigInvalid(
                f"{directory} is not empty and not the data directory of a test server", setting="data"
            )
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _MARK).touch()


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the flags and serve."""
    parser = argparse.ArgumentParser(prog="python -m tidewire.testing", description=__doc__)
    for f in fields(Settings):
        flag = "--" + f.name.replace("_", "-")
        help_text = str(f.metadata["help"]).replace("%", "%%")
        if f.type == "bool":
            parser.add_argument(flag, action="store_true", default=None, help=help_text)
        else:
            parser.add_argument(flag, help=help_text)
    try:
        flags = vars(parser.parse_args(arguments)) | {"dev": True}
        # Ignore environment and tidewire.toml, so that tests behave the same everywhere.
        settings = load_settings(flags, environment={}, directory=Path(__file__).parent)
        configure_logging(settings.log_level, form=settings.log_format)
        _clear(Path(settings.data))
        return uvloop.run(serve(settings, ensure_template_org()))
    except ConfigInvalid as error:
        parser.exit(2, f"{parser.prog}: {error.message}\n")


if __name__ == "__main__":
    sys.exit(main())
