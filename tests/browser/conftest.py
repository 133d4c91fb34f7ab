"""A server with a lake, a real Chromium, and pages that note whatever they should not do."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from playwright.sync_api import Browser, Page, expect

from tests.chromium import running_chromium
from tests.running import Rest
from tidewire.testing import ServerProcess

WAIT_MS = 60_000
AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
LAKE_RECORD = "001000000000001AAA"
TWO_OR_MORE = re.compile(r"^([2-9]|\d\d+)$")
"""So many moments a chart needs to have a line."""

# Pixels by colour of a PNG. An empty page of its own does it: the console's policy allows no image but its own.
COUNT_COLOURS = """async png => {
    const bytes = Uint8Array.from(atob(png), character => character.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes], {type: "image/png"}));
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
    context.drawImage(image, 0, 0);
    const counted = new Map();
    for (const pixel of new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer)) {
        counted.set(pixel, (counted.get(pixel) ?? 0) + 1);
    }
    const hex = part => (part & 255).toString(16).padStart(2, "0");
    const name = pixel => `#${hex(pixel)}${hex(pixel >> 8)}${hex(pixel >> 16)}`;
    return Object.fromEntries([...counted].map(([pixel, count]) => [name(pixel), count]));
}"""

expect.set_options(timeout=WAIT_MS)


@dataclass(frozen=True, slots=True)
class Lake:
    """A directory as a running pipeline leaves it: its word about itself, and a history."""

    path: Path

    def tell(self, **status: object) -> None:
        """Write `status.json` as of now."""
        whole = self.path / "status.json.new"
        whole.write_text(json.dumps(status), "utf-8")
        ahead_s = whole.stat().st_mtime + 600  # a slow browser must not take it for silence
        os.utime(whole, (ahead_s, ahead_s))
        whole.replace(self.path / "status.json")

    def fall_silent(self) -> None:
        """Let the pipeline have told of itself an hour ago."""
        path = self.path / "status.json"
        written_s = path.stat().st_mtime
        os.utime(path, (written_s - 3600, written_s - 3600))

    def keep_history(self, entity: str, rows: list[dict[str, object]]) -> None:
        """Make an object's table of changes."""
        write_deltalake(str(self.path / "history" / entity), pa.Table.from_pylist(rows))


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The lake that `server` shows."""
    made = Lake(tmp_path_factory.mktemp("lake"))
    base = {"record_id": LAKE_RECORD, "user_id": "005000000000001AAA", "origin": "test"}
    made.keep_history(
        "Account",
        [
            base
            | {
                "replay_id": 11,
                "change_type": "CREATE",
                "commit_ms": 1_700_000_000_000,
                "changed": ["Name"],
                "values_json": '{"Name": "Harbour"}',
            },
            base
            | {
                "replay_id": 12,
                "change_type": "UPDATE",
                "commit_ms": 1_700_000_060_000,
                "changed": ["Phone"],
                "values_json": '{"Phone": "555", "LastActivityDate": 1806624000000}',
            },
            base
            | {
                "record_id": "001000000000002AAA",
                "replay_id": 13,
                "change_type": "DELETE",
                "commit_ms": 1_700_000_070_000,
                "changed": [],
                "values_json": "{}",
            },
        ],
    )
    return made


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, lake: Lake) -> Iterator[ServerProcess]:
    """The server that all browser tests share: use objects of your own names, and leave it running."""
    data = tmp_path_factory.mktemp("console") / "data"
    with ServerProcess(data, options=("--pipeline-dir", str(lake.path))) as process:
        yield process


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for each module and no longer."""
    with running_chromium() as chromium:
        yield chromium


@dataclass(frozen=True, slots=True)
class Picture:
    """How many pixels of each colour a part of a page was painted with."""

    pixels: dict[str, int]

    def share(self, colour: str) -> float:
        """The part of the picture that has this colour."""
        return self.pixels.get(colour, 0) / sum(self.pixels.values())

    def plainest(self) -> float:
        """The share of the commonest colour: nearly 1 for a page that shows nothing."""
        return max(self.pixels.values()) / sum(self.pixels.values())


@dataclass(slots=True)
class ConsolePage:
    """A tab of its own on the console. `asked` and `complaints` are what it requested and stumbled over."""

    tab: Page
    url: str
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open(self, *segments: str) -> Page:
        """Go to a page of the console and wait until it is there and the stream is connected."""
        self.tab.goto(f"{self.url}/#/{'/'.join(segments)}")
        expect(self.tab.locator("#state")).to_have_attribute("data-state", "connected")
        expect(self.tab.locator("main h1")).to_be_visible()
        return self.tab

    def assert_behaved(self) -> None:
        """Nothing left the host, and nothing was thrown, refused by the policy or logged as an error."""
        assert self.asked
        assert [url for url in self.asked if not url.startswith(self.url)] == []
        assert self.complaints == []

    def picture(self, path: Path, part: str = "body") -> Picture:
        """Take a picture of a part of the page as it is painted."""
        png = self.tab.locator(part).first.screenshot(path=path, animations="disabled")
        counted = self.tab.context.new_page()
        try:
            found = counted.evaluate(COUNT_COLOURS, base64.b64encode(png).decode())
        finally:
            counted.close()
        return Picture(found)

    def colour(self, name: str) -> str:
        """A colour of the page's own, as pictures count it."""
        value = self.tab.evaluate(
            "name => getComputedStyle(document.documentElement).getPropertyValue(name)", name
        )
        return str(value).strip()

    def findings(self) -> list[str]:
        """What axe finds serious or critical on the page as it stands."""
        # Not a script of the page's: the policy would refuse that.
        if not self.tab.evaluate("'axe' in window"):
            self.tab.evaluate(AXE.read_text("utf-8"))
        # Rows of a table are made alike, so a few of many tell.
        found = self.tab.evaluate(
            "axe.run({exclude: [['tbody tr:nth-child(n+4)']]}, {resultTypes: ['violations']})"
        )
        return [
            f"{each['id']}: {each['nodes'][0]['html'][:200]}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]


@pytest.fixture
def console(browser: Browser, server: ServerProcess) -> Iterator[ConsolePage]:
    """A signed-in console in a fresh tab; at the end it must have behaved."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(WAIT_MS)
    opened = ConsolePage(context.new_page(), server.http)
    tab = opened.tab
    tab.on("request", lambda request: opened.asked.append(request.url))
    tab.on("pageerror", lambda error: opened.complaints.append(str(error)))
    tab.on(
        "console",
        lambda message: opened.complaints.append(message.text) if message.type == "error" else None,
    )
    yield opened
    context.close()


@pytest.fixture
def admin(server: ServerProcess) -> Iterator[Rest]:
    """REST calls as the development administrator."""
    client = Rest(server.http, server.login())
    yield client
    client.close()
