"""The page in a real browser against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.chromium import running_chromium
from tests.running import Rest
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

WAIT_MS = 120_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_chromium() as chromium:
        yield chromium


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    context.set_default_timeout(WAIT_MS)
    yield context.new_page()
    context.close()


def assert_connected(page: Page) -> None:
    expect(page.locator("#state")).to_have_text("Connected", timeout=WAIT_MS)


def assert_newest_row_tells(page: Page, *cells: str) -> None:
    row = page.locator("#rows tr").first
    for cell in cells:
        expect(row).to_contain_text(cell, timeout=WAIT_MS)


def create_account(rest: Rest) -> str:
    """Create a record and return its id."""
    return rest.create("Account", {"Name": f"Harbour {uuid4()}"})


def test_page_shows_a_new_record_as_its_event_arrives(page: Page, server: ServerProcess, rest: Rest) -> None:
    page.goto(server.http)
    assert_connected(page)

    record_id = create_account(rest)

    assert_newest_row_tells(page, "CREATE", "Account", record_id, "Name")


def test_page_opened_late_shows_what_happened_before(page: Page, server: ServerProcess, rest: Rest) -> None:
    record_id = create_account(rest)

    page.goto(server.http)

    expect(page.locator("#rows tr", has_text=record_id)).to_have_count(1, timeout=WAIT_MS)


def test_page_names_the_fields_of_an_update(page: Page, server: ServerProcess, rest: Rest) -> None:
    record_id = create_account(rest)
    page.goto(server.http)
    assert_connected(page)

    rest.update("Account", record_id, {"Website": "https://harbour.example"})

    assert_newest_row_tells(page, "UPDATE", record_id, "Website")


def test_page_when_paused_counts_on_and_shows_the_rest_later(
    page: Page, server: ServerProcess, rest: Rest
) -> None:
    page.goto(server.http)
    assert_connected(page)
    assert_newest_row_tells(page, create_account(rest))
    seen = int(page.locator("#count").inner_text())

    page.get_by_role("button", name="Pause").press("Enter")
    record_id = create_account(rest)
    expect(page.locator("#count")).to_have_text(str(seen + 1), timeout=WAIT_MS)
    expect(page.locator("#rows tr", has_text=record_id)).to_have_count(0)

    page.get_by_role("button", name="Pause").press("Enter")
    assert_newest_row_tells(page, record_id)


def test_page_goes_on_after_the_server_was_killed_and_repeats_nothing(
    page: Page, fresh_server: ServerProcess
) -> None:
    page.goto(fresh_server.http)
    assert_connected(page)
    before = Rest(fresh_server.http, fresh_server.login())
    first = create_account(before)
    before.close()
    assert_newest_row_tells(page, first)

    fresh_server.kill()
    expect(page.locator("#state")).not_to_have_text("Connected", timeout=WAIT_MS)
    fresh_server.restart()
    after = Rest(fresh_server.http, fresh_server.login())
    second = create_account(after)
    after.close()

    assert_newest_row_tells(page, second)
    expect(page.locator("#rows tr", has_text=first)).to_have_count(1)
    assert_connected(page)


def test_page_asks_nobody_else_and_breaks_no_policy(page: Page, server: ServerProcess, rest: Rest) -> None:
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))

    page.goto(server.http)
    assert_connected(page)
    assert_newest_row_tells(page, create_account(rest))

    assert asked
    assert [url for url in asked if not url.startswith(server.http)] == []
    assert complaints == []
