"""The explorer and the SOQL editor in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Route, expect

from tests.browser.conftest import ConsolePage
from tests.running import Rest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

DATA = "/services/data/v67.0"


def own_name() -> str:
    return f"Harbour {uuid4()}"


def create_many(admin: Rest, entity: str, rows: list[dict[str, str]]) -> None:
    for start in range(0, len(rows), 200):
        records = [{"attributes": {"type": entity}} | row for row in rows[start : start + 200]]
        admin.call("POST", f"{DATA}/composite/sobjects", {"allOrNone": True, "records": records})


def test_record_is_made_changed_and_deleted_in_the_explorer(console: ConsolePage, admin: Rest) -> None:
    name = own_name()
    tab = console.open("objects", "Account", "new")
    tab.get_by_label("Account Name").fill(name)
    tab.get_by_label("Industry").select_option("Energy")
    tab.get_by_role("button", name="Save").click()
    expect(tab.locator("dl.values")).to_contain_text(name)
    (record,) = admin.query(f"SELECT Id, Industry FROM Account WHERE Name = '{name}'")
    assert record["Industry"] == "Energy"

    tab.get_by_role("button", name="Edit").click()
    tab.get_by_label("Account Phone").fill("555")
    tab.get_by_role("button", name="Save").click()
    expect(tab.get_by_role("status").filter(has_text="saved")).to_be_visible()
    (record,) = admin.query(f"SELECT Id, Phone FROM Account WHERE Name = '{name}'")
    assert record["Phone"] == "555"

    tab.get_by_role("button", name="Delete").click()
    tab.keyboard.press("Escape")
    expect(tab.get_by_role("button", name="Delete")).to_be_focused()
    tab.keyboard.press("Enter")
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", name="Accounts")).to_be_visible()
    assert admin.query(f"SELECT Id FROM Account WHERE Name = '{name}'") == []
    console.assert_behaved()


def test_deleted_record_is_found_in_the_recycle_bin_and_undeleted(console: ConsolePage, admin: Rest) -> None:
    name = own_name()
    record_id = admin.create("Account", {"Name": name})
    admin.delete("Account", record_id)
    tab = console.open("objects", "Account")
    tab.get_by_label("Recycle bin").check()
    tab.get_by_label("Find by Name").fill(name)
    tab.get_by_role("button", name="Find", exact=True).click()
    tab.locator("#records").get_by_role("link", name=name).click()
    expect(tab.get_by_text("This record is in the recycle bin.")).to_be_visible()
    console.complaints.clear()  # the browser itself reports that the record was not found at first
    assert console.findings() == []

    tab.get_by_role("button", name="Undelete").click()
    expect(tab.get_by_role("status").filter(has_text="Record restored.")).to_be_visible()
    expect(tab.get_by_role("button", name="Edit")).to_be_visible()
    assert admin.query(f"SELECT Id FROM Account WHERE Name = '{name}'") != []
    console.assert_behaved()


def test_record_leads_to_what_refers_to_it(console: ConsolePage, admin: Rest) -> None:
    record_id = admin.create("Account", {"Name": own_name()})
    rows = [{"LastName": f"Mate {number}", "AccountId": record_id} for number in range(21)]
    create_many(admin, "Contact", rows)
    tab = console.open("objects", "Account", record_id)
    tab.get_by_text("Contacts (21)").click()
    related = tab.get_by_role("region", name="Contacts")
    expect(related.locator("tbody tr")).to_have_count(20)
    tab.get_by_role("link", name="All 21 in SOQL").click()
    tab.get_by_role("button", name="Run").click()
    expect(tab.locator("#query-summary")).to_contain_text("21 of 21 rows")
    tab.locator("#query-rows a").first.click()
    expect(tab.get_by_role("heading", name=re.compile("Contact Mate"))).to_be_visible()
    expect(tab.get_by_role("link", name=record_id)).to_be_visible()
    console.assert_behaved()


def test_refused_record_names_its_field_beside_the_form(console: ConsolePage) -> None:
    tab = console.open("objects", "Account", "new")
    expect(tab.get_by_label("Account Name")).to_be_focused()
    tab.get_by_label("Account Name").fill(own_name())
    tab.get_by_label("SIC Code").fill("x" * 30)
    tab.get_by_role("button", name="Save").click()
    problem = tab.get_by_role("form").get_by_role("alert")
    expect(problem).to_contain_text("STRING_TOO_LONG")
    expect(tab.get_by_label("SIC Code")).to_have_attribute("aria-invalid", "true")
    expect(tab.get_by_label("Website")).to_have_attribute("aria-invalid", "false")
    assert console.findings() == []


def test_long_list_is_read_to_its_end_and_back(console: ConsolePage, admin: Rest) -> None:
    mark = uuid4().hex[:8]
    create_many(admin, "Lead", [{"LastName": f"{mark}%{n}", "Company": "Harbour"} for n in range(120)])
    create_many(admin, "Lead", [{"LastName": f"{mark}x{n}", "Company": "Harbour"} for n in range(3)])
    tab = console.open("objects", "Lead")
    tab.get_by_label("Find by Name").fill(f"{mark}%")  # a percent sign is only itself
    tab.get_by_role("button", name="Find", exact=True).click()
    seen: set[str] = set()
    for told, count in (("1 to 50", 50), ("51 to 100", 50), ("101 to 120", 20)):
        expect(tab.get_by_text(f"{told} of 120, newest change first")).to_be_visible()
        expect(tab.locator("#records tr")).to_have_count(count)
        seen |= set(tab.locator("#records a").all_inner_texts())
        if count == 50:
            tab.get_by_role("button", name="Next").click()
    assert len(seen) == 120
    expect(tab.get_by_role("button", name="Next")).to_be_disabled()
    tab.get_by_role("button", name="Previous").click()
    expect(tab.get_by_text("51 to 100 of 120, newest change first")).to_be_visible()
    console.assert_behaved()


@pytest.mark.parametrize(
    "presses, told", [(("Next", "Next"), "51 to 100"), (("Previous", "Next"), "1 to 50")]
)
def test_list_that_is_still_asked_for_is_not_left_behind(
    console: ConsolePage, admin: Rest, presses: tuple[str, str], told: str
) -> None:
    mark = uuid4().hex[:8]
    create_many(admin, "Lead", [{"LastName": f"{mark}{n}", "Company": "Harbour"} for n in range(120)])
    tab = console.open("objects", "Lead")
    tab.get_by_label("Find by Name").fill(mark)
    tab.get_by_role("button", name="Find", exact=True).click()
    expect(tab.get_by_text("1 to 50 of 120, newest change first")).to_be_visible()
    if presses[0] == "Previous":
        tab.get_by_role("button", name="Next").click()
        expect(tab.get_by_text("51 to 100 of 120, newest change first")).to_be_visible()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    tab.route("**/query?*", hold)
    with tab.expect_request("**/query?*"):
        tab.get_by_role("button", name=presses[0]).click()
    tab.get_by_role("button", name=presses[1]).click()
    for route in held:
        route.continue_()
    tab.unroute("**/query?*")
    expect(tab.get_by_text(f"{told} of 120, newest change first")).to_be_visible()
    expect(tab.locator("#records tr")).to_have_count(50)
    console.assert_behaved()


def test_text_that_looks_like_markup_stays_text(console: ConsolePage, admin: Rest) -> None:
    name = f"<img src=x onerror=alert(1)><b>{uuid4().hex[:8]}</b>"
    record_id = admin.create("Account", {"Name": name, "Website": "javascript:alert(1)"})
    tab = console.open("overview")
    for route in (("objects", "Account"), ("objects", "Account", record_id)):
        console.open(*route)
        expect(tab.get_by_text(name).first).to_be_visible()
    console.open("query")
    tab.get_by_label("Query").fill(f"SELECT Name, Website FROM Account WHERE Id = '{record_id}'")
    tab.get_by_role("button", name="Run").click()
    expect(tab.locator("#query-rows td").first).to_have_text(name)
    assert tab.locator("main img, main b, a[href^=javascript]").count() == 0
    console.assert_behaved()


def test_object_list_leads_to_records_and_fields(console: ConsolePage, admin: Rest) -> None:
    name = own_name()
    admin.create("Account", {"Name": name})
    tab = console.open("objects")
    tab.get_by_label("Filter").fill("acc")
    tab.get_by_role("link", name="Account", exact=True).click()

    expect(tab.get_by_role("link", name=name)).to_be_visible()
    expect(tab.get_by_role("region", name="Fields")).to_contain_text("AnnualRevenue")
    console.assert_behaved()


def test_query_shows_rows_page_by_page(console: ConsolePage, admin: Rest, tmp_path: Path) -> None:
    tab = console.open("query")
    marker = f"Paged {uuid4()}"
    create_many(admin, "Contact", [{"LastName": marker, "FirstName": str(n)} for n in range(250)])
    tab.get_by_label("Query").fill(
        f"SELECT Id, FirstName, Owner.Name FROM Contact WHERE LastName = '{marker}'"
    )
    tab.get_by_label("Query").press("Control+Enter")

    expect(tab.locator("#query-summary")).to_contain_text("200 of 250 rows")
    expect(tab.get_by_role("columnheader", name="Owner.Name")).to_be_visible()
    assert console.picture(tmp_path / "query.png").plainest() < 0.9
    assert console.picture(tmp_path / "rows.png", "#query-rows tr").plainest() < 0.97
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Download CSV").click()
    lines = Path(download.value.path()).read_bytes().decode().splitlines()
    assert lines[0] == "Id,FirstName,Owner.Name"
    assert len(lines) == 251

    tab.get_by_role("button", name="Next page").click()
    expect(tab.locator("#query-summary")).to_contain_text("250 of 250 rows")
    expect(tab.get_by_role("button", name="Next page")).to_have_count(0)
    console.assert_behaved()


def test_file_that_does_not_hold_all_rows_says_so(console: ConsolePage) -> None:
    tab = console.open("query")

    def answer(route: Route) -> None:
        count = 200 if "?" in route.request.url else 25_000
        rows = [{"attributes": {"type": "Contact"}, "FirstName": str(n)} for n in range(count)]
        more = {"totalSize": 60_000, "done": False, "nextRecordsUrl": f"{DATA}/query/more"}
        route.fulfill(json=more | {"records": rows})

    tab.route("**/query?*", answer)
    tab.route("**/query/more", answer)
    tab.get_by_label("Query").fill("SELECT FirstName FROM Contact")
    tab.get_by_role("button", name="Run").click()
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Download CSV").click()
    assert len(Path(download.value.path()).read_bytes().splitlines()) == 50_201
    told = tab.get_by_text("The file holds the first 50,200 of 60,000 rows.")
    expect(told).to_be_visible()
    tab.get_by_role("button", name="Run").click()
    expect(told).to_have_count(0)
    console.assert_behaved()


def test_query_error_is_shown_at_its_place(console: ConsolePage) -> None:
    tab = console.open("query")
    tab.get_by_label("Query").fill("SELECT Id,\n  Nam\nFROM Account")
    tab.get_by_role("button", name="Run").click()

    expect(tab.get_by_role("alert")).to_contain_text("Row 2, column 3: No such column 'Nam'")
    expect(tab.locator(".mistake pre")).to_have_text("  Nam\n  ^")
    selected = tab.get_by_label("Query").evaluate("e => e.value.slice(e.selectionStart, e.selectionEnd)")
    assert selected == "Nam"
    assert console.findings() == []


def test_query_shows_subqueries_and_groups_as_tables(console: ConsolePage, admin: Rest) -> None:
    name = own_name()
    record_id = admin.create("Account", {"Name": name})
    create_many(admin, "Contact", [{"LastName": f"Mate {n}", "AccountId": record_id} for n in range(2)])
    tab = console.open("query")
    query = tab.get_by_label("Query")
    query.fill(
        f"SELECT Name, (SELECT LastName FROM Contacts ORDER BY LastName) FROM Account WHERE Name = '{name}'"
    )
    query.press("Control+Enter")
    expect(tab.locator("#query-rows table td")).to_have_text(["Mate 0", "Mate 1"])
    assert console.findings() == []

    query.fill(
        f"SELECT AccountId, COUNT(Id) mates FROM Contact WHERE AccountId = '{record_id}' GROUP BY AccountId"
    )
    query.press("Control+Enter")
    expect(tab.get_by_role("columnheader", name="mates")).to_be_visible()
    expect(tab.locator("#query-rows td").nth(1)).to_have_text("2")
    console.assert_behaved()
