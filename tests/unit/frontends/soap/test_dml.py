"""The calls that write records."""

from __future__ import annotations

import pytest

from tests.orgs import READER, TestOrg
from tests.published import bodies, kept_events
from tests.unit.frontends.soap.caller import Caller, children, code, sign_in
from tidewire.frontends.soap.wire import ENTERPRISE
from tidewire.records.query import Cell

ALL_OR_NONE = "<AllOrNoneHeader><allOrNone>true</allOrNone></AllOrNoneHeader>"
EXTERNAL = {
    "objects": {
        "Account": {"fields": {"Key__c": {"type": "Text", "length": 20, "external_id": True, "unique": True}}}
    }
}


def account(name: str, inner: str = "") -> str:
    return f"<sObjects><type>Account</type><Name>{name}</Name>{inner}</sObjects>"


async def read(org: TestOrg, record_id: str, *fields: str) -> list[Cell]:
    rows = await org.gate.read(org.admin, "Account", record_id, fields)
    return [rows.rows[0][name] for name in fields]


async def test_create_answers_each_record_in_order(org: TestOrg) -> None:
    caller = await sign_in(org)
    made, failed = await caller.call("create", account("A &amp; B", "<Phone>1</Phone>") + account(""))
    assert children(made) == ["id", "success"]
    assert await read(org, made.findtext("id") or "", "Name", "Phone") == ["A & B", "1"]
    assert children(failed) == ["errors", "id", "success"]
    assert children(failed[0]) == ["fields", "message", "statusCode"]
    assert (failed.findtext("errors/fields"), code(failed)) == ("Name", "REQUIRED_FIELD_MISSING")
    assert failed.findtext("success") == "false"


async def test_all_or_none_stores_nothing_when_one_record_fails(org: TestOrg) -> None:
    caller = await sign_in(org)
    first, second = await caller.call("create", account("A") + account(""), ALL_OR_NONE)
    assert code(first) == "ALL_OR_NONE_OPERATION_ROLLED_BACK"
    assert code(second) == "REQUIRED_FIELD_MISSING"
    assert (await org.gate.query(org.admin, "SELECT Id FROM Account")).rows == []


async def test_blank_and_nil_fields_are_left_alone_and_fields_to_null_are_emptied(org: TestOrg) -> None:
    caller = await sign_in(org)
    record_id = await org.make_account(Phone="1", Fax="2", Site="3")
    await caller.call(
        "update",
        f"<sObjects><type>Account</type><fieldsToNull>Site</fieldsToNull><Id>{record_id}</Id>"
        '<Phone></Phone><Fax xsi:nil="true"/></sObjects>',
    )
    assert await read(org, record_id, "Phone", "Fax", "Site") == ["1", "2", None]


async def test_values_are_read_as_xml_schema_spells_them(org: TestOrg) -> None:
    await org.apply(
        objects={
            "Account": {
                "fields": {
                    "Flag__c": {"type": "Checkbox"},
                    "Day__c": {"type": "Date"},
                    "Moment__c": {"type": "DateTime"},
                }
            }
        }
    )
    caller = await sign_in(org)
    inner = "<Flag__c>1</Flag__c><Day__c>2024-02-03Z</Day__c><Moment__c>1970-01-01T00:00:01</Moment__c>"
    (made,) = await caller.call("create", account("A", inner))
    record_id = made.findtext("id") or ""
    assert await read(org, record_id, "Flag__c", "Moment__c") == [True, 1000]
    (row,) = await caller.call(
        "retrieve",
        "<fieldList>Flag__c,Day__c,Moment__c</fieldList><sObjectType>Account</sObjectType>"
        f"<ids>{record_id}</ids>",
    )
    shown = [row.findtext(name) for name in ("Flag__c", "Day__c", "Moment__c")]
    assert shown == ["true", "2024-02-03", "1970-01-01T00:00:01.000Z"]


@pytest.mark.parametrize(
    "sent, day",
    [
        ("2024-02-03T23:59:59.999Z", "2024-02-03"),
        ("2024-02-03T23:00:00-02:00", "2024-02-04"),
        ("2024-02-03T00:00:00.000+01:00", "2024-02-02"),
    ],
)
async def test_moment_sent_for_a_date_counts_as_its_day_in_utc(org: TestOrg, sent: str, day: str) -> None:
    await org.apply(objects={"Account": {"fields": {"Day__c": {"type": "Date"}}}})
    caller = await sign_in(org)
    (made,) = await caller.call("create", account("A", f"<Day__c>{sent}</Day__c>"))
    (row,) = await caller.call(
        "retrieve",
        f"<fieldList>Day__c</fieldList><sObjectType>Account</sObjectType><ids>{made.findtext('id')}</ids>",
    )
    assert row.findtext("Day__c") == day


@pytest.mark.parametrize(
    "sent", ["2024-02-30T00:00:00Z", "2024-02-03T99:00:00Z", "0001-01-01T00:00:00+14:00"]
)
async def test_moment_that_never_was_is_no_date(org: TestOrg, sent: str) -> None:
    await org.apply(objects={"Account": {"fields": {"Day__c": {"type": "Date"}}}})
    caller = await sign_in(org)
    (refused,) = await caller.call("create", account("A", f"<Day__c>{sent}</Day__c>"))
    assert code(refused) == "INVALID_TYPE_ON_FIELD_IN_RECORD"


async def test_too_long_text_is_truncated_only_when_the_header_allows_it(org: TestOrg) -> None:
    caller = await sign_in(org)
    record = account("x" * 300)
    (refused,) = await caller.call("create", record)
    assert code(refused) == "STRING_TOO_LONG"
    header = (
        "<AllowFieldTruncationHeader><allowFieldTruncation>true</allowFieldTruncation>"
        "</AllowFieldTruncationHeader>"
    )
    (made,) = await caller.call("create", record, header)
    assert await read(org, made.findtext("id") or "", "Name") == ["x" * 255]


@pytest.mark.parametrize(
    "record, expected",
    [
        ("<sObjects><type>Nope</type></sObjects>", "sf:INVALID_TYPE"),
        (account("A", "<Nope__c>1</Nope__c>"), "sf:INVALID_FIELD"),
        ("<sObjects><Name>A</Name></sObjects>", "soapenv:Client"),
        (account("A") * 201, "sf:EXCEEDED_ID_LIMIT"),
    ],
)
async def test_call_that_no_record_could_survive_is_a_fault(org: TestOrg, record: str, expected: str) -> None:
    caller = await sign_in(org)
    assert (await caller.fault("create", account("First") + record))[0] == expected
    assert (await org.gate.query(org.admin, "SELECT Id FROM Account")).rows == []


async def test_update_and_delete_report_the_error_of_each_id(org: TestOrg) -> None:
    caller = await sign_in(org)
    record_id = await org.make_account()
    update = "".join(
        f"<sObjects><type>Account</type><Id>{i}</Id><Phone>1</Phone></sObjects>"
        for i in ("", "junk", "001000000000000AAA", record_id)
    )
    assert [code(r) for r in await caller.call("update", update)] == [
        "MISSING_ARGUMENT",
        "MALFORMED_ID",
        "INVALID_CROSS_REFERENCE_KEY",
        "",
    ]
    ids = "".join(f"<ids>{i}</ids>" for i in ("junk", "zzz000000000000AAA", record_id, record_id))
    assert [code(r) for r in await caller.call("delete", ids)] == [
        "MALFORMED_ID",
        "INVALID_CROSS_REFERENCE_KEY",
        "",
        "ENTITY_IS_DELETED",
    ]


async def test_deleted_record_can_be_restored_or_purged(org: TestOrg) -> None:
    caller = await sign_in(org)
    record_id = await org.make_account()
    for operation in ("delete", "undelete", "delete", "emptyRecycleBin"):
        (result,) = await caller.call(operation, f"<ids>{record_id}</ids>")
        assert (result.findtext("id"), result.findtext("success")) == (record_id, "true")
    (gone,) = await caller.call("undelete", f"<ids>{record_id}</ids>")
    assert code(gone) == "INVALID_CROSS_REFERENCE_KEY"


async def test_undelete_all_or_none_leaves_all_in_the_bin(org: TestOrg) -> None:
    caller = await sign_in(org)
    kept, living = await org.make_account(), await org.make_account()
    await org.gate.delete(org.call, "Account", kept)
    results = await caller.call("undelete", f"<ids>{kept}</ids><ids>{living}</ids>", ALL_OR_NONE)
    assert [code(r) for r in results] == ["ALL_OR_NONE_OPERATION_ROLLED_BACK", "UNDELETE_FAILED"]
    (row,) = (await org.gate.query(org.admin, "SELECT Id FROM Account")).rows
    assert row["Id"] == living


async def test_upsert_reports_what_was_created(org: TestOrg) -> None:
    await org.apply(**EXTERNAL)
    caller = await sign_in(org)
    known = await org.make_account(Key__c="k1")
    key = "<externalIDFieldName>Key__c</externalIDFieldName>"
    old, new, failed = await caller.call(
        "upsert",
        key
        + account("Changed", "<Key__c>k1</Key__c>")
        + account("Fresh", "<Key__c>k2</Key__c>")
        + account("Lost"),
    )
    assert children(old) == ["created", "id", "success"]
    assert (old.findtext("created"), old.findtext("id")) == ("false", known)
    assert new.findtext("created") == "true"
    assert (failed.findtext("created"), code(failed)) == ("false", "REQUIRED_FIELD_MISSING")
    assert await read(org, known, "Name") == ["Changed"]
    wrong = "<externalIDFieldName>Phone</externalIDFieldName>" + account("A")
    assert (await caller.fault("upsert", wrong))[0] == "sf:INVALID_FIELD"


async def test_upserts_with_a_duplicate_key_are_rejected(org: TestOrg) -> None:
    await org.apply(**EXTERNAL)
    caller = await sign_in(org)
    key = "<externalIDFieldName>Key__c</externalIDFieldName>"
    rows = [
        account(name, f"<Key__c>{value}</Key__c>") for name, value in (("A", "x"), ("B", "y"), ("C", "x"))
    ]
    first, second, third = await caller.call("upsert", key + "".join(rows))
    assert (code(first), second.findtext("created"), code(third)) == (
        *("DUPLICATE_VALUE", "true", "DUPLICATE_VALUE"),
    )


async def test_lookup_is_found_by_external_id(org: TestOrg) -> None:
    await org.apply(**EXTERNAL)
    caller = await sign_in(org)
    parent = await org.make_account(Key__c="k1")

    def contact(value: str) -> str:
        return (
            "<sObjects><type>Contact</type><LastName>L</LastName>"
            f"<Account><type>Account</type><Key__c>{value}</Key__c></Account></sObjects>"
        )

    made, lost = await caller.call("create", contact("k1") + contact("k9"))
    rows = await org.gate.query(org.admin, "SELECT AccountId FROM Contact")
    assert [row["AccountId"] for row in rows.rows] == [parent]
    assert made.findtext("success") == "true"
    assert code(lost) == "INVALID_FIELD"
    assert (lost.findtext("errors/message") or "").startswith("Foreign key external ID: k9 not found")


async def test_enterprise_records_name_their_type_in_an_attribute(org: TestOrg) -> None:
    caller = await sign_in(org, ENTERPRISE)
    (made,) = await caller.call("create", '<sObjects xsi:type="sf:Account"><sf:Name>E</sf:Name></sObjects>')
    assert await read(org, made.findtext("id") or "", "Name") == ["E"]


async def test_event_is_published_and_answered_with_its_uuid(org: TestOrg) -> None:
    await org.apply(events={"Order__e": {"fields": {"Number__c": {"type": "Text", "length": 20}}}})
    caller = await sign_in(org)
    event, record = await caller.call(
        "create", "<sObjects><type>Order__e</type><Number__c>7</Number__c></sObjects>" + account("A")
    )
    assert code(event) == "OPERATION_ENQUEUED"
    assert event.findtext("success") == "true"
    assert len(event.findtext("errors/message") or "") == 36
    assert (record.findtext("id") or "").startswith("001")


async def test_reader_gets_an_access_error_for_each_record(org: TestOrg) -> None:
    record_id = await org.make_account()
    caller = await sign_in(org, username=READER)
    (refused,) = await caller.call("delete", f"<ids>{record_id}</ids>")
    assert code(refused) == "INSUFFICIENT_ACCESS_OR_READONLY"
    hidden = account("A", "<Phone>1</Phone>")
    assert (await caller.fault("create", hidden))[0] == "sf:INVALID_FIELD"


async def call_with_client(caller: Caller, header: str) -> None:
    await caller.call("create", account("A"), header)


async def test_client_name_reaches_the_change_origin(org: TestOrg) -> None:
    caller = await sign_in(org)
    seen: list[str] = []
    org.core.records.add_hook(lambda unit, changes, context: seen.append(context.origin))
    await call_with_client(caller, "<CallOptions><client>MyApp</client></CallOptions>")
    await call_with_client(caller, "<CallOptions><client>My\tApp</client></CallOptions>")
    await call_with_client(caller, "")
    plain = "com/salesforce/api/soap/59.0"
    assert seen == [f"{plain};client=MyApp", plain, plain]


async def test_streaming_header_silences_push_topics_only(org: TestOrg) -> None:
    await org.gate.create(
        org.call, "PushTopic", {"Name": "T", "Query": "SELECT Id, Name FROM Account", "ApiVersion": 59}
    )
    caller = await sign_in(org)
    families: list[list[str]] = []
    org.core.commits.watch(lambda batch: families.append([event.family.name for event in batch.events]))
    off = "<StreamingEnabledHeader><streamingEnabled>false</streamingEnabled></StreamingEnabledHeader>"
    await caller.call("create", account("A"), off)
    await caller.call("create", account("B"))
    written = [names for names in families if names]
    assert written == [["CHANGE"], ["CHANGE", "PUSH_TOPIC"]]


async def test_push_topic_that_breaks_the_rules_is_its_own_result(org: TestOrg) -> None:
    caller = await sign_in(org)
    (refused,) = await caller.call(
        "create",
        "<sObjects><type>PushTopic</type><Name>T</Name><Query>SELECT Name FROM Account</Query>"
        "<ApiVersion>59.0</ApiVersion></sObjects>",
    )
    assert code(refused) == "INVALID_FIELD"


async def test_all_or_none_rolls_back_records_but_not_immediate_events(org: TestOrg) -> None:
    fields = {"Done__c": {"type": "Checkbox"}, "On__c": {"type": "Date"}}
    prompt = {"publish": "immediately", "fields": fields}
    await org.apply(events={"Late__e": {"fields": fields}, "Prompt__e": prompt})
    head = await org.link.read_log_head()
    caller = await sign_in(org)
    given = "".join(
        f"<sObjects><type>{name}</type><Done__c>1</Done__c><On__c>2024-02-29Z</On__c></sObjects>"
        for name in ("Late__e", "Prompt__e")
    )
    late, now, good, bad = await caller.call("create", given + account("A") + account(""), ALL_OR_NONE)
    assert [code(each) for each in (late, now, good, bad)] == [
        "ALL_OR_NONE_OPERATION_ROLLED_BACK",
        "OPERATION_ENQUEUED",
        "ALL_OR_NONE_OPERATION_ROLLED_BACK",
        "REQUIRED_FIELD_MISSING",
    ]
    assert await kept_events(org, "Late__e", head) == []
    (body,) = await bodies(org, "Prompt__e", head)
    assert (body["Done__c"], body["On__c"]) == (True, 1_709_164_800_000)
    assert (await org.gate.query(org.admin, "SELECT Id FROM Account")).rows == []


async def test_event_cannot_be_updated(org: TestOrg) -> None:
    await org.apply(events={"Late__e": {"fields": {"Done__c": {"type": "Checkbox"}}}})
    caller = await sign_in(org)
    (refused,) = await caller.call(
        "update", "<sObjects><type>Late__e</type><Id>e00000000000001AAA</Id></sObjects>"
    )
    assert code(refused) == "INVALID_TYPE_FOR_OPERATION"
