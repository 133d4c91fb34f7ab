"""The example messages of the Change Data Capture guide, each brought about through the API that causes it.

Every field of every example is compared, apart from ids, times, schema ids, commit numbers and origins. Where an
object here has checkboxes that the guide's org did not show its user, they are named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from tests.running import API, Json, Rest, SeenEvent, call_metadata, read_topic
from tests.wire.guide_watch import ANY, Watcher, check_event
from tidewire.testing import ServerProcess

ADMIN = "/services/tidewire/v1"
STAMPS = {"CreatedDate": ANY, "CreatedById": ANY, "LastModifiedDate": ANY, "LastModifiedById": ANY}
CONSENTS = {"HasOptedOutOfEmail": False, "HasOptedOutOfFax": False, "DoNotCall": False}
OPTIONS = ["--bayeux-reconnect-s", "600"]  # a session waits while the other server's tests run
PERSON_CONSENTS = {f"Person{name}": value for name, value in CONSENTS.items()}
CLOUD = "\r\n".join(
    (
        "Everyone is talking about “the cloud.” But what does it mean?",
        "Business applications are moving to the cloud. It’s not just a fad—the shift from traditional software"  # noqa: RUF001
        " models to the Internet has steadily gained momentum over the last 10 years.",
        "Cloud computing: a better way",
        "With cloud computing, you eliminate headaches because you’re not managing hardware and software—that’s"  # noqa: RUF001
        " the responsibility of an experienced vendor like Salesforce. The shared infrastructure means it works"
        " like a utility: you only pay for what you need, upgrades are automatic, and scaling up or down is easy.",
        "Cloud-based apps can be up and running in days or weeks, and they cost less. With a cloud app, you just"
        " open a browser, log in, customize the app, and start using it.",
        "Businesses are running all kinds of apps in the cloud, like customer relationship management (CRM), HR,"
        " accounting, and much more. Some of the world’s largest companies moved their applications to the cloud"  # noqa: RUF001
        " with Salesforce after rigorously testing the security and reliability of our infrastructure.",
        "As cloud computing grows in popularity, thousands of companies are simply rebranding their non-cloud"
        " products and services as “cloud computing.” Always dig deeper when evaluating cloud offerings.",
    )
)
ADDED = (
    " And keep in mind that if you have to buy and manage hardware and software, what you’re looking at isn’t"  # noqa: RUF001
    " really cloud computing but a false cloud."
)


class Org:
    """A server of this module's own, because its whole channel is watched."""

    def __init__(self, server: ServerProcess, entities: list[str]) -> None:
        self._server = server
        self._address = urlsplit(server.http).netloc
        self._token = server.login()
        self.rest = Rest(server.http, self._token)
        self.rest.call("POST", f"{ADMIN}/apply", {"capture": entities})
        self.watcher = Watcher(server.http, self._token)

    def close(self) -> None:
        """Hang up; whoever calls again dials anew."""
        self.watcher.close()
        self.rest.close()

    def read_accounts(self, last_id: str, last_type: str) -> list[SeenEvent]:
        """The account events of all time over gRPC, decoded by the schemas that the server names."""

        def is_last(event: SeenEvent) -> bool:
            return last_id in event.header["recordIds"] and event.header["changeType"] == last_type

        metadata = call_metadata(self._token, self._server.http, self._server.org_id)
        return read_topic(self._server.grpc, metadata, "/data/AccountChangeEvent", is_last)

    def soap(self, operation: str) -> str:
        """Call the SOAP API with a client id in its call options."""
        envelope = (
            '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/" xmlns="urn:partner.soap.sforce.com">'
            f"<e:Header><SessionHeader><sessionId>{self._token}</sessionId></SessionHeader>"
            "<CallOptions><client>Astro</client></CallOptions></e:Header>"
            f"<e:Body>{operation}</e:Body></e:Envelope>"
        )
        connection = HTTPConnection(self._address, timeout=120)
        try:
            headers = {"Content-Type": "text/xml; charset=UTF-8", "SOAPAction": '""'}
            connection.request("POST", "/services/Soap/u/49.0", envelope.encode(), headers)
            response = connection.getresponse()
            text = response.read().decode()
            assert response.status == 200, text
            return text
        finally:
            connection.close()


@pytest.fixture(scope="module")
def kept_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Org]:
    entities = ["Account", "Contact", "Opportunity", "Lead", "Task", "Event", "EventRelation", "User"]
    with ServerProcess(tmp_path_factory.mktemp("guide") / "data", options=OPTIONS) as server:
        made = Org(server, entities)
        yield made
        made.close()


@pytest.fixture(scope="module")
def kept_person_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Org]:
    with ServerProcess(tmp_path_factory.mktemp("persons") / "data", options=OPTIONS) as server:
        made = Org(server, ["Account", "Contact"])
        custom = {"CustomContactField__c": {"type": "Text", "length": 20}}
        made.rest.call("POST", f"{ADMIN}/apply", {"settings": {"person_accounts": True}})
        made.rest.call("POST", f"{ADMIN}/apply", {"objects": {"Contact": {"fields": custom}}})
        yield made
        made.close()


@pytest.fixture
def org(kept_org: Org) -> Org:
    kept_org.close()  # the server closes connections that were idle for long
    return kept_org


@pytest.fixture
def person_org(kept_person_org: Org) -> Org:
    kept_person_org.close()
    return kept_person_org


def headers_of(events: list[Json]) -> list[Json]:
    return [event["payload"]["ChangeEventHeader"] for event in events]


def test_new_account_is_told_with_every_value_and_stamp(org: Org) -> None:
    text = "Everyone is talking about the cloud. But what does it mean?"
    made = org.soap(
        '<create><sObjects xmlns:x="http://www.w3.org/2001/XMLSchema-instance"><type>Account</type>'
        f"<Name>Acme</Name><Description>{text}</Description></sObjects></create>"
    )
    (event,) = org.watcher.take(1)
    body = {"Name": "Acme", "Description": text, "OwnerId": ANY, **STAMPS}
    header = check_event(event, "CREATE", "Account", 1, body)
    assert header["changedFields"] == []
    assert header["changeOrigin"] == "com/salesforce/api/soap/49.0;client=Astro"
    assert header["recordIds"][0] in made


def test_same_update_of_three_accounts_is_one_merged_event(org: Org) -> None:
    ids = [org.rest.create("Account", {"Name": f"Merged {n}"}) for n in range(3)]
    org.watcher.take(3)
    records = [{"attributes": {"type": "Account"}, "id": i, "Industry": "Apparel"} for i in ids]
    org.rest.call("PATCH", f"{API}/composite/sobjects", {"allOrNone": True, "records": records})
    (event,) = org.watcher.take(1)
    header = check_event(event, "UPDATE", "Account", 1, {"Industry": "Apparel", "LastModifiedDate": ANY})
    assert header["changedFields"] == ["Industry", "LastModifiedDate"]
    assert header["recordIds"] == ids


def test_archived_task_is_told_by_a_gap_event(org: Org) -> None:
    task = org.rest.create("Task", {"Subject": "Old", "Status": "Completed", "ActivityDate": "2017-10-01"})
    org.watcher.take(1)
    answer = org.rest.call("POST", f"{ADMIN}/activities/archive", {"before": "2017-11-01"})
    assert answer == {"archived": {"Task": 1, "Event": 0}}
    (event,) = org.watcher.take(1)
    header = check_event(event, "GAP_UPDATE", "Task", 1, {})
    assert (header["changedFields"], header["changeOrigin"], header["recordIds"]) == ([], "", [task])
    assert header["transactionKey"].startswith("0Mc")


def test_recurring_event_is_told_by_its_series_and_each_occurrence(org: Org) -> None:
    org.rest.create(
        "Event",
        {
            "Subject": "Product Planning",
            "Description": "Let's meet to discuss product requirements.",
            "Location": "Orcas Room",
            "ActivityDateTime": "2027-08-09T19:00:00.000Z",
            "DurationInMinutes": 60,
            "Recurrence2PatternText": "RRULE:FREQ=WEEKLY;INTERVAL=1;BYDAY=MO;COUNT=13",
        },
    )
    events = org.watcher.take(14)
    body = {
        **STAMPS,
        "Description": "Let's meet to discuss product requirements.",
        "ActivityDate": "2027-08-09",
        "IsRecurrence": False,
        "Recurrence2PatternVersion": "1",
        "GroupEventType": "3",
        "Subject": "Product Planning",
        "ActivityDateTime": "2027-08-09T19:00:00.000Z",
        "DurationInMinutes": 60,
        "OwnerId": ANY,
        "IsAllDayEvent": False,
        "IsChild": False,
        "IsReminderSet": False,
        "ActivityRecurrence2Id": ANY,
        "IsPrivate": False,
        "IsRecurrence2Exclusion": False,
        "Recurrence2PatternText": "RRULE:FREQ=WEEKLY;INTERVAL=1;BYDAY=MO;COUNT=13",
        "Location": "Orcas Room",
        "ShowAs": "Busy",
        "IsGroupEvent": False,
    }
    check_event(events[0], "CREATE", "Event", 1, body)
    check_event(events[1], "CREATE", "Event", 2, body | {"GroupEventType": "0"})
    assert len({header["transactionKey"] for header in headers_of(events)}) == 1
    assert events[0]["payload"]["ActivityRecurrence2Id"] == events[13]["payload"]["ActivityRecurrence2Id"]


def test_invited_user_has_a_child_event_and_a_relation(org: Org) -> None:
    user = org.rest.query("SELECT Id FROM User WHERE Username = 'reader@tidewire.local'")[0]["Id"]
    event_values = {
        "Subject": "Product Requirements",
        "Description": "Let's meet to discuss product requirements.",
        "Location": "Orcas Room",
        "ActivityDateTime": "2027-08-06T20:00:00.000Z",
        "DurationInMinutes": 60,
    }
    relation = {"EventId": "@{meeting.id}", "RelationId": user, "IsInvitee": True, "Status": "New"}
    parts = [
        {"method": "POST", "url": f"{API}/sobjects/Event", "referenceId": "meeting", "body": event_values},
        {"method": "POST", "url": f"{API}/sobjects/EventRelation", "referenceId": "guest", "body": relation},
    ]
    order = {"graphs": [{"graphId": "1", "compositeRequest": parts}]}
    answer = org.rest.call("POST", f"{API}/composite/graph", order)
    assert answer["graphs"][0]["isSuccessful"], answer
    meeting, child, invitation = org.watcher.take(3)
    body = {
        **event_values,
        **STAMPS,
        "ActivityDate": "2027-08-06",
        "IsRecurrence": False,
        "GroupEventType": "1",
        "OwnerId": ANY,
        "IsAllDayEvent": False,
        "IsChild": False,
        "IsReminderSet": False,
        "IsPrivate": False,
        "IsRecurrence2Exclusion": False,
        "ShowAs": "Busy",
        "IsGroupEvent": True,
    }
    header = check_event(meeting, "CREATE", "Event", 1, body)
    check_event(child, "CREATE", "Event", 2, body | {"IsChild": True, "OwnerId": user})
    check_event(
        invitation,
        "CREATE",
        "EventRelation",
        3,
        {
            **STAMPS,
            "Status": "New",
            "IsWhat": False,
            "IsInvitee": True,
            "IsParent": False,
            "RelationId": user,
            "EventId": header["recordIds"][0],
        },
    )
    assert len({header["transactionKey"] for header in headers_of([meeting, child, invitation])}) == 1


def test_new_user_is_told_with_lists_of_what_is_set(org: Org) -> None:
    given = {
        "ProfileId": org.rest.query("SELECT Id FROM Profile WHERE Name = 'Standard User'")[0]["Id"],
        "Email": "jane.smith@example.com",
        "Username": "jane.smith@example.com",
        "Alias": "janes",
        "CommunityNickname": "jane.smith",
        "TimeZoneSidKey": "America/Los_Angeles",
        "LocaleSidKey": "en_US",
        "EmailEncodingKey": "ISO-8859-1",
        "LanguageLocaleKey": "en_US",
        "ReceivesInfoEmails": True,
        "ReceivesAdminInfoEmails": True,
    }
    emails = ["AutoBcc", "StayInTouchReminder"]
    preferences = [
        "ActivityRemindersPopup",
        "EventRemindersCheckboxDefault",
        "TaskRemindersCheckboxDefault",
        "DisableLikeEmail",
        "SortFeedByComment",
        "ShowTitleToExternalUsers",
        "LightningExperiencePreferred",
        "HideSfxWelcomeMat",
    ]
    flags = {f"EmailPreferences{name}": True for name in emails}
    flags |= {f"UserPreferences{name}": True for name in preferences}
    user = org.rest.create("User", {"FirstName": "Jane", "LastName": "Smith", **given, **flags})
    (event,) = org.watcher.take(1)
    body = {
        **given,
        **STAMPS,
        "EmailPreferences": emails,
        "UserPreferences": preferences,
        "UserPermissions": [],
        "IsActive": True,
        "ForecastEnabled": False,
        "DigestFrequency": "D",
        "Name": {"FirstName": "Jane", "LastName": "Smith"},
        "IsProfilePhotoActive": False,
        "IsSystemControlled": False,
        "DefaultGroupNotificationFrequency": "N",
        "UserType": "Standard",
    }
    check_event(event, "CREATE", "User", 1, body)
    org.rest.update("User", user, {"UserPreferencesDisableLikeEmail": False})
    (event,) = org.watcher.take(1)
    kept = [name for name in preferences if name != "DisableLikeEmail"]
    check_event(event, "UPDATE", "User", 1, {"UserPreferences": kept, "LastModifiedDate": ANY})


def test_converted_lead_is_told_by_four_events_in_order(org: Org) -> None:
    lead = org.rest.create(
        "Lead",
        {
            "FirstName": "Brenda",
            "LastName": "Mcclure",
            "Company": "Cadinal Inc.",
            "Title": "CFO",
            "Email": "brenda@cardinal.net",
            "Phone": "(847) 262-5000",
            "State": "IL",
            "Country": "USA",
            "LeadSource": "Web",
        },
    )
    org.watcher.take(1)
    org.soap(
        f"<convertLead><leadConverts><leadId>{lead}</leadId>"
        "<convertedStatus>Closed - Converted</convertedStatus></leadConverts></convertLead>"
    )
    account, contact, opportunity, update = org.watcher.take(4)
    address = {"State": "IL", "Country": "USA"}
    check_event(
        account,
        "CREATE",
        "Account",
        1,
        {
            **STAMPS,
            "Name": "Cadinal Inc.",
            "AccountSource": "Web",
            "BillingAddress": address,
            "OwnerId": ANY,
            "Phone": "(847) 262-5000",
        },
    )
    check_event(
        contact,
        "CREATE",
        "Contact",
        2,
        {
            **STAMPS,
            **CONSENTS,
            "AccountId": account["payload"]["ChangeEventHeader"]["recordIds"][0],
            "Email": "brenda@cardinal.net",
            "Name": {"FirstName": "Brenda", "LastName": "Mcclure"},
            "OwnerId": ANY,
            "Phone": "(847) 262-5000",
            "Title": "CFO",
            "MailingAddress": address,
            "LeadSource": "Web",
        },
    )
    assert headers_of([opportunity])[0]["sequenceNumber"] == 3
    shown = {"Probability": 10.0, "LeadSource": "Web", "IsPrivate": False}
    assert opportunity["payload"].items() >= shown.items()
    assert opportunity["payload"].keys() >= {"ForecastCategoryName", *STAMPS}
    made = [header["recordIds"][0] for header in headers_of([account, contact, opportunity])]
    header = check_event(
        update,
        "UPDATE",
        "Lead",
        4,
        {
            "Status": "Closed - Converted",
            "IsConverted": True,
            "ConvertedDate": ANY,
            "ConvertedAccountId": made[0],
            "ConvertedContactId": made[1],
            "ConvertedOpportunityId": made[2],
        },
    )
    assert header["changedFields"] == [
        "Status",
        "IsConverted",
        "ConvertedDate",
        "ConvertedAccountId",
        "ConvertedContactId",
        "ConvertedOpportunityId",
    ]
    assert len({h["transactionKey"] for h in headers_of([account, contact, opportunity, update])}) == 1


def test_long_text_that_changed_little_is_told_by_its_difference(org: Org) -> None:
    account = org.rest.create("Account", {"Name": "Acme", "Description": CLOUD})
    (event,) = org.watcher.take(1)
    check_event(
        event, "CREATE", "Account", 1, {"Name": "Acme", "Description": CLOUD, "OwnerId": ANY, **STAMPS}
    )
    updated = CLOUD.replace("Business applications", "Business apps") + ADDED
    assert hashlib.sha256(updated.encode()).hexdigest().startswith("682b8747ccdb93b5")
    org.rest.update("Account", account, {"Description": updated})
    (event,) = org.watcher.take(1)
    old, new = CLOUD.split("\r\n"), updated.split("\r\n")
    difference = "\n".join(
        (
            "--- ",
            "+++ 682b8747ccdb93b546e7bbe479b27d26ec7c38ccabb76cdd8308c6595492bffc",
            "@@ -2,1 +2,1 @@",
            "-" + old[1],
            "+" + new[1],
            "@@ -7,1 +7,1 @@",
            "-" + old[6],
            "+" + new[6],
        )
    )
    body = {"LastModifiedDate": ANY, "Description": {"diff": difference}}
    header = check_event(event, "UPDATE", "Account", 1, body)
    assert header["changedFields"] == ["Description", "LastModifiedDate"]


def test_new_person_account_is_told_by_account_and_contact(person_org: Org) -> None:
    person = {"FirstName": "Jane", "LastName": "Smith"}
    given = {**person, "Phone": "(415) 555-1212", "CustomContactField__pc": "001"}
    person_org.rest.create("Account", given)
    account, contact = person_org.watcher.take(2)
    common = {**STAMPS, "OwnerId": ANY, "Phone": "(415) 555-1212", "Name": person}
    contact_id = contact["payload"]["ChangeEventHeader"]["recordIds"][0]
    header = check_event(
        account,
        "CREATE",
        "Account",
        1,
        {
            **common,
            **PERSON_CONSENTS,
            "PersonContactId": contact_id,
            "CustomContactField__pc": "001",
            "RecordTypeId": ANY,
        },
    )
    check_event(
        contact,
        "CREATE",
        "Contact",
        2,
        {
            **common,
            **CONSENTS,
            "AccountId": header["recordIds"][0],
            "IsPersonAccount": True,
            "CustomContactField__c": "001",
        },
    )


def test_updated_person_account_is_told_twice_whatever_changed(person_org: Org) -> None:
    account = person_org.rest.create("Account", {"FirstName": "Joan", "LastName": "Doe"})
    person_org.watcher.take(2)
    for values, of_account, of_contact in (
        ({"Industry": "Apparel"}, {"Industry": "Apparel"}, {}),
        ({"FirstName": "Jo"}, {"Name": {"FirstName": "Jo"}}, {"Name": {"FirstName": "Jo"}}),
        ({"PersonTitle": "CFO"}, {"PersonTitle": "CFO"}, {"Title": "CFO"}),
        (
            {"CustomContactField__pc": "2"},
            {"CustomContactField__pc": "2"},
            {"CustomContactField__c": "2"},
        ),
    ):
        person_org.rest.update("Account", account, values)
        first, second = person_org.watcher.take(2)
        check_event(first, "UPDATE", "Account", 1, {**of_account, "LastModifiedDate": ANY})
        check_event(second, "UPDATE", "Contact", 2, {**of_contact, "LastModifiedDate": ANY})
    person_org.rest.delete("Account", account)
    first, second = person_org.watcher.take(2)
    check_event(first, "DELETE", "Account", 1, {})
    check_event(second, "DELETE", "Contact", 2, {})


def test_business_account_beside_persons_has_a_plain_name(person_org: Org) -> None:
    person_org.rest.create("Account", {"Name": "Acme"})
    (event,) = person_org.watcher.take(1)
    check_event(event, "CREATE", "Account", 1, {"Name": "Acme", "OwnerId": ANY, **STAMPS})


def test_undeleted_person_account_is_told_whole_by_both_halves(person_org: Org) -> None:
    account = person_org.rest.create(
        "Account", {"FirstName": "Una", "LastName": "Doe", "Industry": "Apparel"}
    )
    person_org.rest.delete("Account", account)
    person_org.watcher.take(4)
    person_org.soap(f"<undelete><ids>{account}</ids></undelete>")
    first, second = person_org.watcher.take(2)
    assert [h["changeType"] for h in headers_of([first, second])] == ["UNDELETE", "UNDELETE"]
    assert {h["entityName"] for h in headers_of([first, second])} == {"Account", "Contact"}
    for event in (first, second):
        assert event["payload"]["Name"] == {"FirstName": "Una", "LastName": "Doe"}


def test_name_of_an_account_is_a_text_or_the_parts_of_a_person_over_grpc(person_org: Org) -> None:
    business = person_org.rest.create("Account", {"Name": "Plain"})
    person = person_org.rest.create("Account", {"Salutation": "Ms.", "FirstName": "Ida", "LastName": "Roe"})
    person_org.rest.update("Account", person, {"FirstName": "Isa"})
    person_org.watcher.take(5)
    events = person_org.read_accounts(person, "UPDATE")
    names = {event.header["recordIds"][0]: event.payload["Name"] for event in events[:-1]}
    assert names[business] == "Plain"
    assert names[person] == {"Salutation": "Ms.", "FirstName": "Ida", "LastName": "Roe"}
    last = events[-1]
    assert last.payload["Name"] == {"Salutation": None, "FirstName": "Isa", "LastName": None}
    assert "1-0x02" in last.header["changedFields"]


def test_difference_of_a_text_is_marked_in_the_header_over_grpc(person_org: Org) -> None:
    lines = [f"{n}: a line of a text that is long enough to be told by its differences" for n in range(30)]
    account = person_org.rest.create("Account", {"Name": "Text", "Description": "\n".join(lines)})
    person_org.rest.update("Account", account, {"Description": "\n".join(["first", *lines[1:]])})
    person_org.watcher.take(2)
    event = person_org.read_accounts(account, "UPDATE")[-1]
    assert event.payload["Description"].startswith("--- \n+++ ")
    assert event.payload["Description"].endswith(f"@@ -1,1 +1,1 @@\n-{lines[0]}\n+first")
    (marked,) = event.header["diffFields"]
    assert int(marked, 16) & int(event.header["changedFields"][0], 16) == int(marked, 16)
