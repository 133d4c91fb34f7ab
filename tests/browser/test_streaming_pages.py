"""The guides' demo pages, and the pipeline page, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import LAKE_RECORD, TWO_OR_MORE, ConsolePage, Lake
from tests.running import Rest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


def expect_subscribed(tab: Page, channel: str) -> None:
    expect(tab.locator("[data-channel]")).to_have_attribute("data-channel", channel)


def assert_log_tells(tab: Page, *kinds: str) -> None:
    for kind in kinds:
        row = tab.locator("#meta-log tr", has=tab.locator("strong", has_text=kind)).first
        expect(row).to_contain_text("successful")


def replay_from(tab: Page, replay_id: str) -> None:
    """Subscribe anew from there, and wait until the server has agreed."""
    said = tab.locator("#meta-log tr", has=tab.locator("strong", has_text=re.compile(r"^subscribe$")))
    before = said.count()
    tab.get_by_label("Replay From Id").fill(replay_id)
    tab.get_by_role("button", name="Update Subscription").click()
    expect(said).to_have_count(before + 1)


def test_push_topic_demo_makes_the_topic_and_replays(
    console: ConsolePage, admin: Rest, tmp_path: Path
) -> None:
    name = f"Test account {uuid4().hex[:8]}"
    tab = console.open("demo", "topic")
    expect_subscribed(tab, "/topic/TestAccountStreaming")
    expect(tab.get_by_label("Replay From Id")).to_have_value("-2")
    assert admin.query("SELECT Id FROM PushTopic WHERE Name = 'TestAccountStreaming'") != []
    rows = tab.locator("#notifications tr")
    replay_from(tab, "-1")
    expect(rows).to_have_count(0)
    tab.get_by_label("New Account Name").fill(name)
    tab.get_by_role("button", name="Create, Update, Delete New Account").click()

    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("deleted")
    expect(rows.nth(1)).to_contain_text(f"{name}_UPDATED")
    expect(rows.nth(2)).to_contain_text("created")
    assert_log_tells(tab, "handshake", "connect", "subscribe")
    rows.nth(2).get_by_text("Full message").click()
    expect(rows.nth(2)).to_contain_text('"channel":"/topic/TestAccountStreaming"')
    first = rows.nth(2).locator("td").first.inner_text()

    replay_from(tab, first)
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("updated")
    assert_log_tells(tab, "unsubscribe")

    replay_from(tab, "-2")
    expect(rows.filter(has_text=name)).to_have_count(2)
    expect(rows.filter(has_text="created").first).to_be_visible()
    assert console.picture(tmp_path / "durable.png").plainest() < 0.95
    assert console.picture(tmp_path / "replayed.png", "#notifications").plainest() < 0.98
    assert console.findings() == []
    console.assert_behaved()


def test_replay_id_that_is_none_is_explained(console: ConsolePage) -> None:
    tab = console.open("demo", "topic")
    expect_subscribed(tab, "/topic/TestAccountStreaming")
    tab.get_by_label("Replay From Id").fill("soon")
    tab.get_by_role("button", name="Update Subscription").click()
    expect(tab.get_by_role("alert").filter(has_text="must be -2, -1")).to_be_visible()

    tab.get_by_label("Replay From Id").fill("5")
    tab.get_by_role("button", name="Update Subscription").click()
    failed = tab.locator("#meta-log tr", has_text="failed").first
    expect(failed).to_contain_text("The replayId {5} you provided was invalid")
    expect(tab.locator("[data-channel]")).to_contain_text("not subscribed")
    expect(tab.locator("[data-channel]")).to_contain_text("The replayId {5} you provided was invalid")


def test_generic_demo_pushes_as_many_messages_as_asked(console: ConsolePage) -> None:
    message = f"Test message {uuid4().hex[:8]}"
    tab = console.open("demo", "generic")
    expect_subscribed(tab, "/u/TestStreaming")
    expect(tab.get_by_text(re.compile(r"\(id: 0M6\w{15}\)"))).to_be_visible()
    tab.get_by_label("Message").fill(message)
    tab.get_by_label("Number of Events").fill("10")
    tab.get_by_role("button", name="Generate Events").click()

    rows = tab.locator("#notifications tr", has_text=message)
    expect(rows).to_have_count(10)
    expect(rows.first.locator("code").first).to_have_text(f'"{message}"')
    fifth = rows.nth(5).locator("td").first.inner_text()

    replay_from(tab, fifth)
    expect(rows).to_have_count(5)
    assert console.findings() == []
    console.assert_behaved()


def test_any_channel_is_subscribed_to_and_left(console: ConsolePage, admin: Rest) -> None:
    tab = console.open("demo", "plain")
    expect(tab.locator("#meta-log")).to_contain_text("handshake")
    tab.get_by_label("Channel", exact=True).fill("/data/AccountChangeEvent")
    tab.get_by_role("button", name="Subscribe", exact=True).click()
    expect_subscribed(tab, "/data/AccountChangeEvent")
    record_id = admin.create("Account", {"Name": f"Harbour {uuid4()}"})
    expect(tab.locator("#notifications tr", has_text=record_id)).to_contain_text("CREATE")

    tab.get_by_role("button", name="Unsubscribe").click()
    expect_subscribed(tab, "")
    assert_log_tells(tab, "unsubscribe")
    unseen = admin.create("Account", {"Name": f"Harbour {uuid4()}"})
    tab.get_by_label("Replay From Id").fill("-2")
    tab.get_by_label("Channel", exact=True).fill("/data/ContactChangeEvent")
    tab.get_by_role("button", name="Subscribe", exact=True).click()
    expect_subscribed(tab, "/data/ContactChangeEvent")
    expect(tab.locator("#notifications tr", has_text=unseen)).to_have_count(0)

    tab.reload()
    expect(tab.get_by_label("Channel", exact=True)).to_have_value("/data/ContactChangeEvent")
    expect_subscribed(tab, "")
    console.assert_behaved()


def test_refused_channel_is_told_in_the_log(console: ConsolePage) -> None:
    tab = console.open("demo", "plain")
    tab.get_by_label("Channel", exact=True).fill("/topic/NobodyMadeThis")
    tab.get_by_role("button", name="Subscribe", exact=True).click()
    expect(tab.locator("#meta-log tr", has_text="failed").first).to_contain_text("NobodyMadeThis")
    expect_subscribed(tab, "")


def test_pipeline_page_shows_tables_freshness_and_history(
    console: ConsolePage, lake: Lake, tmp_path: Path
) -> None:
    lake.tell(
        health="behind",
        archived=120,
        waiting=7,
        lag_ms=4_000,
        dirty=3,
        given_up=1,
        resyncing=["Contact"],
        dead_letters={"unknown schema": 2},
        replicas=[
            {"entity": "Account", "live": 41, "deleted": 2, "stale": 3},
            {"entity": "Contact", "live": 0, "deleted": 0, "stale": 0},
        ],
        open_transaction_ms=1_500,
    )
    tab = console.open("pipeline")

    expect(tab.locator("#lake-tables")).to_contain_text("Account")
    expect(tab.locator("#lake-tables")).to_contain_text("41")
    expect(tab.locator(".figures")).to_contain_text("4 s behind")
    expect(tab.get_by_text("3 records are stale")).to_contain_text("1 stay stale: the server refuses to give")
    expect(tab.get_by_text("3 records are stale")).to_contain_text("Being read again as a whole: Contact.")
    expect(tab.get_by_role("region", name="Dead letters")).to_contain_text("unknown schema")
    expect(tab.locator(".chart canvas")).to_have_count(2)
    expect(tab.locator(".figures")).to_contain_text("Healthbehind")

    tab.get_by_label("Record id").fill(LAKE_RECORD)
    tab.get_by_role("button", name="Show history").click()
    expect(tab.locator("#history tr")).to_have_count(2)
    expect(tab.locator("#history tr").first).to_contain_text("UPDATE")
    expect(tab.locator("#history tr").first).to_contain_text("Phone: 555")
    # A day is the same day in every zone.
    expect(tab.locator("#history tr").first).to_contain_text("LastActivityDate: 2027-04-02")
    tables = tab.locator("#lake-tables")
    expect(tables.locator("tr", has_text="Account")).to_contain_text("has stale records")
    expect(tables.locator("tr", has_text="Contact")).to_contain_text("being read again")
    expect(tab.get_by_role("img", name=re.compile(r"seconds behind.* Now 4 seconds"))).to_be_visible()
    expect(tab.locator(".chart").first).to_have_attribute("data-moments", TWO_OR_MORE)
    assert console.picture(tmp_path / "pipeline.png").plainest() < 0.95
    chart = console.picture(tmp_path / "freshness.png", ".chart canvas")
    assert chart.share(console.colour("--line-1")) > 0.001
    assert console.findings() == []
    console.assert_behaved()


def test_pipeline_that_fell_silent_is_told(console: ConsolePage, lake: Lake) -> None:
    lake.tell(archived=1, waiting=0, lag_ms=0)
    lake.fall_silent()
    tab = console.open("pipeline")
    expect(tab.get_by_role("status").filter(has_text="The pipeline is not running")).to_be_visible()
    expect(tab.locator(".figures")).to_contain_text("Freshnessnot running")
