"""The console in a real browser: signing in, looking, and setting up."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from uuid import uuid4

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import TWO_OR_MORE, ConsolePage, Lake
from tests.running import Rest
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.testing import READER_USERNAME, ServerProcess

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

TOOLING = "/services/data/v67.0/tooling"
PAGES = [
    ("overview", "Overview"),
    ("objects", "Objects"),
    ("objects/Account", "Accounts"),
    ("objects/Account/new", "New Account"),
    ("query", "SOQL"),
    ("topics", "Push topics"),
    ("channels", "Channels"),
    ("events", "Platform events"),
    ("capture", "Change Data Capture"),
    ("pipeline", "Pipeline"),
    ("demo/topic", "Push topic demo"),
    ("demo/generic", "Generic demo"),
    ("demo/plain", "Any channel"),
]


def own_name() -> str:
    return f"Harbour {uuid4()}"


def test_person_signs_in_by_soap_and_signs_out(console: ConsolePage, tmp_path: Path) -> None:
    tab = console.open("overview")
    tab.get_by_role("button", name="Sign out").click()
    tab.get_by_label("Username").fill(DEV_USERNAME)
    tab.get_by_label("Password").fill("wrong")
    tab.get_by_role("button", name="Sign in").click()
    expect(tab.get_by_role("alert")).to_contain_text("Invalid username, password")
    console.complaints.clear()  # the browser itself reports the refusal's status
    assert console.findings() == []
    picture = console.picture(tmp_path / "sign-in.png", "#sign-in")
    assert picture.plainest() < 0.95
    assert picture.share(console.colour("--bad")) > 0.001  # the refusal
    assert picture.share(console.colour("--accent")) > 0.01  # the button

    tab.get_by_label("Password").fill(DEV_PASSWORD)
    tab.get_by_label("Password").press("Enter")

    expect(tab.get_by_role("heading", name="Overview")).to_be_visible()
    expect(tab.locator("#state")).to_have_text("Connected")
    console.assert_behaved()


def test_next_user_is_not_shown_what_the_last_one_saw(console: ConsolePage, admin: Rest) -> None:
    stage = {"StageName": "Prospecting", "CloseDate": "2026-12-31"}
    record_id = admin.create("Opportunity", {"Name": own_name(), **stage})
    tab = console.open("overview")
    expect(tab.locator("#rows tr", has_text=record_id)).to_have_count(1)

    tab.get_by_role("button", name="Sign out").click()
    tab.get_by_label("Username").fill(READER_USERNAME)
    tab.get_by_label("Password").fill(DEV_PASSWORD)
    tab.get_by_role("button", name="Sign in").click()

    expect(tab.locator(".who")).to_have_text(READER_USERNAME)
    expect(tab.get_by_role("heading", name="Overview")).to_be_visible()
    expect(tab.locator("#rows tr", has_text=record_id)).to_have_count(0)
    # What this user may not know is said so, and is no failure.
    expect(
        tab.get_by_text("Not shown: the status of streams needs the permission View Setup.")
    ).to_be_visible()
    expect(tab.get_by_role("alert").filter(visible=True)).to_have_count(0)
    tab.goto(f"{console.url}/#/capture")
    expect(tab.get_by_text("Not shown: what is selected needs the permission View Setup.")).to_be_visible()
    tab.goto(f"{console.url}/#/events")
    expect(tab.get_by_text("Not shown: the events of an org need the permission View Setup.")).to_be_visible()
    expect(tab.get_by_text("No platform events yet.")).to_have_count(0)
    tab.goto(f"{console.url}/#/pipeline")
    expect(tab.get_by_text("Not shown: the pipeline needs the permission View All Data.")).to_be_visible()

    # Nobody becomes the development administrator because their own session has ended.
    token = tab.evaluate("JSON.parse(sessionStorage.getItem('tidewire.session')).token")
    admin.call("POST", f"/services/oauth2/revoke?token={token}")
    expect(tab.get_by_role("alert")).to_have_text("Your session has ended. Sign in again.")
    expect(tab.get_by_label("Username")).to_have_value(READER_USERNAME)
    expect(tab.get_by_label("Password")).to_be_focused()


def test_overview_shows_rates_readers_log_and_allocations(
    console: ConsolePage, admin: Rest, tmp_path: Path
) -> None:
    tab = console.open("overview")
    for _ in range(3):
        admin.create("Account", {"Name": own_name()})

    expect(tab.locator("#rows tr").first).to_contain_text("CREATE")
    expect(tab.locator(".figures")).to_contain_text(re.compile(r"Events a second\d"))
    expect(tab.locator(".chart canvas")).to_have_count(2)
    expect(tab.get_by_role("img", name=re.compile(r"Rates.* Now .* events"))).to_be_visible()
    expect(tab.get_by_role("region", name="Subscriptions", exact=True)).to_contain_text("/data/ChangeEvents")
    log = tab.get_by_role("region", name="Event log by family")
    expect(log.locator("tr", has_text="Change events")).to_contain_text(
        re.compile(r"[1-9][\d.,]* (bytes|kB|MB)")
    )
    expect(log.locator("tr", has_text="Change events")).to_contain_text("3 days")
    expect(tab.get_by_role("region", name="Allocations")).to_contain_text("DailyApiRequests")
    assert console.picture(tmp_path / "overview.png").plainest() < 0.9
    expect(tab.locator(".chart").first).to_have_attribute("data-moments", TWO_OR_MORE)
    chart = console.picture(tmp_path / "rates.png", ".chart canvas")
    assert chart.share(console.colour("--line-3")) > 0.0005  # requests, drawn last: nothing covers them
    console.assert_behaved()


def test_push_topic_is_tested_on_recent_changes_then_saved(console: ConsolePage, admin: Rest) -> None:
    name, marker = f"Topic{uuid4().hex[:12]}", own_name()
    told = admin.create("Account", {"Name": marker, "Industry": "Energy"})
    silent = admin.create("Account", {"Name": own_name(), "Industry": "Energy"})
    tab = console.open("topics")
    tab.get_by_role("button", name="New push topic").click()
    expect(tab.get_by_label("Name", exact=True)).to_be_focused()
    tab.keyboard.press("Escape")
    expect(tab.get_by_role("form")).to_have_count(0)
    expect(tab.get_by_role("button", name="New push topic")).to_be_focused()
    tab.keyboard.press("Enter")
    tab.get_by_label("Name", exact=True).fill(name)
    tab.get_by_label("Query").fill(f"SELECT Id, Name FROM Account WHERE Name = '{marker}'")
    tab.get_by_role("button", name="Test against recent changes").click()

    result = tab.locator("#topic-test")
    expect(result).to_contain_text("Replayed from the change events of Account")
    expect(result.locator("tr", has_text=told)).to_contain_text("yes")
    expect(result.locator("tr", has_text=silent)).to_contain_text("WHERE does not hold")
    assert console.findings() == []

    tab.get_by_role("button", name="Save").click()
    expect(tab.get_by_role("status").filter(has_text=f"{name} saved.")).to_be_visible()
    (topic,) = admin.query(f"SELECT Query, NotifyForFields FROM PushTopic WHERE Name = '{name}'")
    assert topic["NotifyForFields"] == "Referenced"

    tab.get_by_role("button", name=f"Edit {name}").click()
    tab.get_by_label("Notify for fields").select_option("All")
    tab.get_by_role("button", name="Save").click()
    row = tab.get_by_role("region", name="Push topics").locator("tr", has_text=name)
    expect(row).to_contain_text("All")

    tab.get_by_role("button", name=f"Delete {name}").click()
    tab.get_by_role("button", name=f"Really delete {name}").click()
    expect(tab.get_by_role("status").filter(has_text=f"{name} deleted.")).to_be_visible()
    console.assert_behaved()


def test_push_topic_is_tested_though_changes_never_cease(
    console: ConsolePage, admin: Rest, server: ServerProcess
) -> None:
    told = admin.create("Contact", {"LastName": own_name()})
    is_over = Event()

    def keep_changing() -> None:
        writer = Rest(server.http, server.login())
        while not is_over.is_set():
            writer.create("Contact", {"LastName": own_name()})
        writer.close()

    tab = console.open("topics")
    tab.get_by_role("button", name="New push topic").click()
    tab.get_by_label("Query").fill(f"SELECT Id, LastName FROM Contact WHERE Id = '{told}'")
    with ThreadPoolExecutor(1) as executor:
        changing = executor.submit(keep_changing)
        try:
            tab.get_by_role("button", name="Test against recent changes").click()
            expect(tab.locator("#topic-test")).to_contain_text("Replayed from the change events of Contact")
        finally:
            is_over.set()
        changing.result()


def test_push_topic_on_an_object_without_capture_is_tested_on_records(
    console: ConsolePage, admin: Rest
) -> None:
    subject = own_name()
    record_id = admin.create("Case", {"Subject": subject})
    tab = console.open("topics")
    tab.get_by_role("button", name="New push topic").click()
    tab.get_by_label("Query").fill(f"SELECT Id, Subject FROM Case WHERE Subject = '{subject}'")
    tab.get_by_role("button", name="Test against recent changes").click()

    result = tab.locator("#topic-test")
    expect(result).to_contain_text("Case is not selected for Change Data Capture")
    expect(result.locator("tr", has_text=record_id)).to_contain_text("matches")


def test_capture_page_selects_and_deselects_an_entity(console: ConsolePage, admin: Rest) -> None:
    def captured() -> list[str]:
        soql = "SELECT+MasterLabel+FROM+PlatformEventChannelMember+WHERE+EventChannel='ChangeEvents'"
        found = admin.call("GET", f"{TOOLING}/query?q={soql}")
        return [row["MasterLabel"] for row in found["records"]]

    assert "CampaignChangeEvent" not in captured()
    tab = console.open("capture")
    available, selected = tab.get_by_label("Available entities ("), tab.get_by_label("Selected entities (")
    expect(selected.locator("option", has_text="Account (Account)")).to_have_count(1)
    tab.get_by_label("Filter").fill("campaign")
    expect(available.locator("option")).to_have_text(
        ["Campaign (Campaign)", "Campaign Member (CampaignMember)"]
    )
    available.select_option(label="Campaign (Campaign)")
    tab.get_by_role("button", name="Add").click()
    tab.get_by_role("button", name="Save").click()
    expect(tab.get_by_role("status").filter(has_text="Saved: 1 added, 0 removed.")).to_be_visible()
    # The page reads the selection again, which undoes what is chosen before it has come.
    expect(tab.get_by_role("button", name="Save")).to_be_disabled()
    assert "CampaignChangeEvent" in captured()

    selected.select_option(label="Campaign (Campaign)")
    tab.get_by_role("button", name="Remove").click()
    tab.get_by_role("button", name="Save").click()
    expect(tab.get_by_role("status").filter(has_text="Saved: 0 added, 1 removed.")).to_be_visible()
    assert "CampaignChangeEvent" not in captured()
    console.assert_behaved()


def test_channels_and_their_members_are_made_and_deleted(console: ConsolePage, admin: Rest) -> None:
    mark = uuid4().hex[:8]
    tab = console.open("channels")
    tab.get_by_role("button", name="New generic channel").click()
    tab.get_by_label("Channel name").fill(f"/u/Made{mark}")
    tab.get_by_role("button", name="Save").click()
    expect(tab.get_by_role("status").filter(has_text=f"/u/Made{mark} saved.")).to_be_visible()
    tab.get_by_role("button", name=f"Edit /u/Made{mark}").click()
    tab.get_by_label("Description").fill("From the console")
    tab.get_by_role("button", name="Save").click()
    generic = tab.get_by_role("region", name="Generic streaming channels")
    expect(generic.locator("tr", has_text=f"/u/Made{mark}")).to_contain_text("From the console")

    tab.get_by_role("button", name="New event channel").click()
    tab.get_by_label("Full name").fill(f"Made{mark}__chn")
    tab.get_by_label("Label").fill(f"Made {mark}")
    tab.get_by_role("button", name="Save").click()
    card = tab.locator(".card", has=tab.get_by_role("heading", name=f"Made {mark}"))
    card.get_by_label("Event to add").select_option("AccountChangeEvent")
    card.get_by_label("Filter expression").fill("Industry = 'Energy'")
    card.get_by_role("button", name="Add member").click()
    expect(card.locator("tbody tr")).to_contain_text("Industry = 'Energy'")
    card.get_by_role("button", name="Edit AccountChangeEvent").click()
    # What is filled in before the member has been read would be lost.
    expect(card.get_by_role("button", name="Save member")).to_be_visible()
    card.get_by_label("Filter expression").fill("Industry = 'Media'")
    card.get_by_label("Enriched fields").fill("Industry, Name")
    card.get_by_role("button", name="Save member").click()
    expect(card.locator("tbody tr")).to_contain_text("Industry = 'Media'")
    enriched = admin.call("GET", f"{TOOLING}/query?q=SELECT+Field+FROM+EnrichedField")["records"]
    assert {row["Field"] for row in enriched} >= {"Industry", "Name"}
    assert console.findings() == []

    card.get_by_role("button", name=f"Edit Made {mark}", exact=True).click()
    tab.get_by_label("Label", exact=True).fill(f"Made {mark} anew")
    tab.get_by_role("button", name="Save").click()
    expect(card.get_by_role("heading")).to_contain_text("anew")
    expect(card.locator("tbody tr")).to_contain_text("AccountChangeEvent")

    card.get_by_role("button", name=f"Delete Made {mark} anew", exact=True).click()
    card.get_by_role("button", name=f"Really delete Made {mark} anew").click()
    expect(card).to_have_count(0)
    assert admin.query(f"SELECT Id FROM StreamingChannel WHERE Name = '/u/Made{mark}'") != []
    console.assert_behaved()


def test_platform_event_is_made_with_a_field_and_published(console: ConsolePage) -> None:
    mark = uuid4().hex[:8]
    tab = console.open("events")
    tab.get_by_role("button", name="New platform event").click()
    tab.get_by_label("API name").fill(f"Made_{mark}__e")
    tab.get_by_label("Label", exact=True).fill(f"Made {mark}")
    tab.get_by_role("button", name="Save").click()
    tab.get_by_role("button", name=f"Open Made {mark}").click()
    tab.get_by_label("Field name").fill("Text__c")
    tab.get_by_role("button", name="Add field").click()
    tab.get_by_label("Text", exact=True).fill("over the wire")
    tab.get_by_role("button", name="Publish").click()
    expect(tab.get_by_role("status").filter(has_text="An event is published")).to_be_visible()
    assert console.findings() == []

    tab.get_by_role("button", name=f"Edit Made {mark}").click()
    tab.get_by_label("Label", exact=True).fill(f"Made {mark} anew")
    tab.get_by_role("button", name="Save").click()
    row = tab.get_by_role("region", name="Platform events").locator("tr", has_text=f"Made {mark} anew")
    expect(row).to_contain_text("Text__c")

    tab.get_by_role("link", name="Watch the channel").click()
    tab.get_by_label("Replay From Id").fill("-2")
    tab.get_by_role("button", name="Subscribe", exact=True).click()
    expect(tab.locator("#notifications tr")).to_contain_text("over the wire")
    console.assert_behaved()


def test_no_page_has_serious_findings_on_desktop_and_phone(console: ConsolePage, lake: Lake) -> None:
    # The same pages twice: as a person at a desk has them, with their forms open, and as one on a phone in the dark.
    lake.tell(archived=5, waiting=0, lag_ms=0, replicas=[{"entity": "Account", "live": 1, "stale": 0}])
    tab = console.tab
    for route, heading in PAGES:
        tab.set_viewport_size({"width": 1280, "height": 900})
        tab.emulate_media(color_scheme="light")
        console.open(route)
        expect(tab.get_by_role("heading", level=1)).to_have_text(heading)
        for opener in tab.locator("main").get_by_role("button", name=re.compile("^New ")).all():
            opener.click()
        assert (route, console.findings()) == (route, [])

        tab.set_viewport_size({"width": 360, "height": 740})
        tab.emulate_media(color_scheme="dark")
        expect(tab.get_by_role("button", name="Menu")).to_be_visible()
        # Charts follow the page's width a frame later.
        expect(tab.locator("html"), route).to_have_js_property("scrollWidth", 360)
        assert (route, console.findings()) == (route, [])
    console.assert_behaved()


def test_page_that_has_nothing_to_show_says_why(console: ConsolePage, lake: Lake) -> None:
    lake.tell(archived=0)
    for route, words in (
        (("nowhere",), "There is nothing here."),
        (("objects", "Nope"), "Nope does not exist here, or is not for this user to see."),
        (("objects", "Account", "001000000000000AAA"), "deleted for good, or was never here"),
        (("pipeline", "Account", "001000000000000AAA"), "The lake has no changes of this record."),
    ):
        tab = console.open(*route)
        expect(tab.get_by_text(words)).to_be_visible()
        assert (route, console.findings()) == (route, [])


def test_phone_menu_leads_to_another_page(console: ConsolePage) -> None:
    console.tab.set_viewport_size({"width": 360, "height": 740})
    tab = console.open("overview")
    expect(tab.get_by_role("link", name="SOQL")).to_be_hidden()
    tab.get_by_role("button", name="Menu").press("Enter")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Escape")
    expect(tab.get_by_role("link", name="SOQL")).to_be_hidden()
    expect(tab.get_by_role("button", name="Menu")).to_be_focused()
    tab.get_by_role("button", name="Menu").click()
    assert console.findings() == []
    tab.get_by_role("link", name="SOQL").click()

    expect(tab.get_by_role("heading", name="SOQL")).to_be_visible()
    expect(tab.get_by_role("link", name="SOQL")).to_be_hidden()


def test_keyboard_alone_walks_from_the_skip_link_to_a_query(console: ConsolePage) -> None:
    tab = console.open("overview")
    tab.keyboard.press("Tab")
    # The heading has the focus when a page opens; what comes before it is reached by starting over.
    tab.evaluate("document.activeElement.blur()")
    tab.reload()
    expect(tab.locator("#state")).to_have_text("Connected")
    tab.evaluate("document.querySelector('.skip').focus()")
    expect(tab.get_by_role("link", name="Skip to the page")).to_be_in_viewport()
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", name="Overview")).to_be_focused()

    link = tab.get_by_role("link", name="SOQL")
    for _ in range(30):
        tab.keyboard.press("Shift+Tab")
        if link.evaluate("e => e === document.activeElement"):
            break
    expect(link).to_be_focused()
    assert link.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", name="SOQL")).to_be_focused()
    tab.keyboard.press("Tab")
    tab.keyboard.press("Control+a")
    tab.keyboard.type("SELECT count() FROM User")
    tab.keyboard.press("Control+Enter")
    expect(tab.locator("#query-summary")).to_contain_text(re.compile(r"The count is [1-9]"))
    console.assert_behaved()


def test_page_is_served_under_a_policy_that_names_only_this_host(
    console: ConsolePage, server: ServerProcess
) -> None:
    response = console.tab.request.get(server.http)
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
