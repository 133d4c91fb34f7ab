"""Writers that do random things to the records of twenty objects, all at the same time and to the same records."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import date, timedelta
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from tests.running import API, InDoubt, Json, Refused, Rest
from tidewire.testing import ServerProcess

ADMIN = "/services/tidewire/v1"
NUMBERS = 101
"""Fields of Wide__c: a thousand of its records with all of them changed are more than one transaction tells."""
CROWD = 1000
HUGE = "☃" * 131_000
"""Three of these are more than one event holds."""

LONG, TEXT, NUMBER, FLAG, DAY, MOMENT, TIME, SEVERAL = (
    "long", "text", "number", "flag", "day", "moment", "time", "several",
)  # fmt: skip
_COLOURS = ("Red", "Green", "Blue")
_LINES = tuple(f"Line {n} says what line {n} of every such text says." for n in range(40))

FIELDS: dict[str, dict[str, Any]] = {
    "Account": {
        "Phone": TEXT,
        "BillingCity": TEXT,
        "BillingStreet": TEXT,
        "Description": LONG,
        "NumberOfEmployees": 9,
    },
    "Contact": {
        "FirstName": TEXT,
        "LastName": TEXT,
        "MailingCity": TEXT,
        "Birthdate": DAY,
        "AccountId": "Account",
    },
    "Lead": {"LastName": TEXT, "Company": TEXT, "City": TEXT, "Description": LONG},
    "Opportunity": {"Amount": NUMBER, "CloseDate": DAY, "AccountId": "Account", "Description": LONG},
    "Case": {"Subject": TEXT, "Description": LONG, "AccountId": "Account", "ContactId": "Contact"},
    "Campaign": {"IsActive": FLAG, "StartDate": DAY, "Description": LONG},
    "Task": {"Subject": TEXT, "ActivityDate": DAY, "WhatId": "Account", "Description": LONG},
    "Event": {"Subject": TEXT, "Location": TEXT, "WhatId": "Opportunity"},
    "Product2": {"ProductCode": TEXT, "IsActive": FLAG, "Description": TEXT},
    "Contract": {"AccountId": "Account", "ContractTerm": 12, "Description": LONG},
    "Asset": {"AccountId": "Account", "Price": NUMBER, "InstallDate": DAY},
    "Pricebook2": {"IsActive": FLAG, "Description": TEXT},
    "Moments__c": {"Day__c": DAY, "Moment__c": MOMENT, "Time__c": TIME},
    "Places__c": {"Place__Latitude__s": NUMBER, "Place__Longitude__s": NUMBER, "Note__c": TEXT},
    "Texts__c": {"Story__c": LONG, "Rich__c": LONG, "Note__c": TEXT},
    "Colours__c": {"One__c": _COLOURS, "Several__c": SEVERAL, "Is__c": FLAG},
    "Masters__c": {"Note__c": TEXT, "Sum__c": NUMBER},
    "Details__c": {"Master__c": "Masters__c", "Value__c": NUMBER},
    "Huge__c": {"Note__c": TEXT},
    "Wide__c": {"N1__c": NUMBER, "N2__c": NUMBER},
}
_NAMED = frozenset({"Account", "Opportunity", "Campaign", "Product2", "Asset", "Pricebook2"})
_NEEDED: dict[str, dict[str, Any]] = {
    "Contact": {"LastName": TEXT},
    "Lead": {"LastName": TEXT, "Company": TEXT},
    "Opportunity": {"CloseDate": DAY, "StageName": ("Prospecting", "Closed Won")},
    "Event": {"ActivityDateTime": MOMENT, "DurationInMinutes": 30},
    "Contract": {"AccountId": "Account"},
    "Asset": {"AccountId": "Account"},
    "Details__c": {"Master__c": "Masters__c"},
}


def definition() -> Json:
    """The custom objects, and the selection of all twenty."""

    def custom(**fields: Json) -> Json:
        return {
            "label": "Thing",
            "plural": "Things",
            "fields": {f"{name}__c": of for name, of in fields.items()},
        }

    def text() -> Json:
        return {"type": "Text", "length": 200}

    def number() -> Json:
        return {"type": "Number", "precision": 12, "scale": 2}

    def long() -> Json:
        return {"type": "LongTextArea", "length": 131_072}

    objects = {
        "Moments__c": custom(Day={"type": "Date"}, Moment={"type": "DateTime"}, Time={"type": "Time"}),
        "Places__c": custom(Place={"type": "Geolocation", "scale": 5}, Note=text()),
        "Texts__c": custom(Story=long(), Rich={"type": "RichTextArea", "length": 32_768}, Note=text()),
        "Colours__c": custom(
            One={"type": "Picklist", "values": list(_COLOURS)},
            Several={"type": "MultiselectPicklist", "values": list(_COLOURS)},
            Is={"type": "Checkbox"},
        ),
        "Masters__c": custom(Note=text(), Sum=number()),
        "Details__c": custom(
            Master={
                "type": "Lookup",
                "references": "Masters__c",
                "master_detail": True,
                "child_relationship": "Ds__r",
            },
            Value=number(),
        ),
        "Huge__c": custom(A=long(), B=long(), C=long(), Note=text()),
        "Wide__c": custom(**{f"N{n}": number() for n in range(1, NUMBERS + 1)}),
    }
    return {"objects": objects, "capture": list(FIELDS)}


def conversions() -> Json:
    """Other types for fields that have data: what is lost is told for all records at once, what becomes a list by
    gap events, and a longer text not at all.
    """
    changed = {
        "Moments__c": {"Day__c": {"type": "Text", "length": 40}},
        "Colours__c": {"One__c": {"type": "MultiselectPicklist", "values": list(_COLOURS)}},
        "Places__c": {"Note__c": {"type": "LongTextArea", "length": 2000}},
    }
    return {"objects": {entity: {"fields": fields} for entity, fields in changed.items()}}


class Org:
    """The server, and the ids of all records that the writers have made, deleted ones too."""

    def __init__(self, server: ServerProcess) -> None:
        self.token = server.login()
        self.http = server.http
        self.lock = threading.Condition()
        self.ids: dict[str, list[str]] = {entity: [] for entity in FIELDS}
        self.done = 0
        self.has_failed = False
        self.lives = 0

    def note(self, count: int) -> None:
        """Count operations on single records that were acknowledged."""
        with self.lock:
            self.done += count
            self.lock.notify_all()

    def note_failure(self) -> None:
        """Let nobody wait for what will not be done."""
        with self.lock:
            self.has_failed = True
            self.lock.notify_all()

    def note_back(self) -> None:
        """Tell writers that the server has been started again."""
        with self.lock:
            self.lives += 1
            self.lock.notify_all()

    def wait_back(self, life: int) -> None:
        """Wait for another life of the server than the one given. Raises AssertionError if none begins."""
        with self.lock:
            assert self.lock.wait_for(lambda: self.lives > life, 240), "the server does not come back"

    def wait_done(self, count: int) -> None:
        """Wait until so many operations were acknowledged, or a writer has failed."""
        with self.lock:
            self.lock.wait_for(lambda: self.done >= count or self.has_failed)


class Writer(threading.Thread):
    """Does random things until all writers together have done enough. `failure` is what stopped it early.

    One that `outlives` its server goes on when that is back, whatever became of the last request.
    """

    def __init__(self, org: Org, seed: int, operations: int, *, outlives: bool = False) -> None:
        super().__init__(daemon=True)
        self._org = org
        self._dice = random.Random(seed)
        self._operations = operations
        self._outlives = outlives
        self._rest = Rest(org.http, org.token)
        self.failure: BaseException | None = None
        self.refused = 0
        self._steps = (
            (25, self._create_one),
            (45, self._update_one),
            (12, self._delete_one),
            (5, self._create_several),
            (5, self._update_several),
            (5, self._update_alike),
            (2, self._delete_several),
            (6, self._undelete),
            (3, self._change_below),
            (1, self._merge),
            (1, self._convert),
            (1, self._make_huge),
        )

    def run(self) -> None:
        weights = [weight for weight, _ in self._steps]
        try:
            while self._org.done < self._operations and not self._org.has_failed:
                life = self._org.lives
                (_, step) = self._dice.choices(self._steps, weights)[0]
                try:
                    self._org.note(step())
                except Refused as refused:
                    # What others have deleted meanwhile, or what a deleted master holds back.
                    if refused.status >= 500:
                        raise
                    self.refused += 1
                except InDoubt:
                    if not self._outlives:
                        raise
                    self._rest.close()  # its connection may be to the server that died
                    self._org.wait_back(life)
        except BaseException as error:  # noqa: BLE001 - told by whoever waits for the writer
            self.failure = error
            self._org.note_failure()
        finally:
            self._rest.close()

    def _create_one(self) -> int:
        entity = self._entity()
        return self._note_new(entity, [self._rest.create(entity, self._new(entity))])

    def _create_several(self) -> int:
        entity = self._entity()
        records = [self._labelled(entity, self._new(entity)) for _ in range(self._dice.randint(2, 20))]
        results = self._rest.call("POST", f"{API}/composite/sobjects", {"records": records})
        return self._note_new(entity, [result["id"] for result in results if result["success"]])

    def _update_one(self) -> int:
        entity = self._entity()
        self._rest.update(entity, self._pick(entity), self._some(entity))
        return 1

    def _update_several(self) -> int:
        entity = self._entity()
        ids = self._pick_several(entity)
        return self._patch([self._labelled(entity, {"id": i, **self._some(entity)}) for i in ids])

    def _update_alike(self) -> int:
        entity = self._entity()
        values = self._some(entity)
        return self._patch([self._labelled(entity, {"id": i, **values}) for i in self._pick_several(entity)])

    def _patch(self, records: list[Json]) -> int:
        is_whole = self._dice.random() < 0.5
        body = {"allOrNone": is_whole, "records": records}
        results = self._rest.call("PATCH", f"{API}/composite/sobjects", body)
        return sum(result["success"] for result in results)

    def _delete_one(self) -> int:
        entity = self._entity()
        self._rest.delete(entity, self._pick(entity))
        return 1

    def _delete_several(self) -> int:
        ids = ",".join(self._pick_several(self._entity()))
        results = self._rest.call("DELETE", f"{API}/composite/sobjects?ids={ids}&allOrNone=false")
        return sum(result["success"] for result in results)

    def _undelete(self) -> int:
        ids = "".join(f"<ids>{i}</ids>" for i in self._pick_several(self._entity()))
        return self._soap(f"<undelete>{ids}</undelete>").count("<success>true</success>")

    def _change_below(self) -> int:
        """Bring about a gap event."""
        entity = self._entity()
        values = self._some(entity)
        ids = [self._pick(entity)]
        job = {"operation": "update", "entity": entity, "ids": ids, "values": values}
        self._rest.call("POST", f"{ADMIN}/database", job)
        return 1

    def _merge(self) -> int:
        master, other = self._pick("Account"), self._pick("Account")
        request = (
            f"<merge><request><masterRecord><type>Account</type><Id>{master}</Id></masterRecord>"
            f"<recordToMergeIds>{other}</recordToMergeIds></request></merge>"
        )
        return 2 * self._soap(request).count("<success>true</success>")

    def _convert(self) -> int:
        convert = (
            f"<convertLead><leadConverts><leadId>{self._pick('Lead')}</leadId><doNotCreateOpportunity>false"
            "</doNotCreateOpportunity><convertedStatus>Closed - Converted</convertedStatus></leadConverts>"
            "</convertLead>"
        )
        return 4 * self._soap(convert).count("<success>true</success>")

    def _make_huge(self) -> int:
        values = {"Note__c": self._text(), "A__c": HUGE, "B__c": HUGE, "C__c": HUGE}
        return self._note_new("Huge__c", [self._rest.create("Huge__c", values)])

    def _soap(self, operation: str) -> str:
        envelope = (
            '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/" xmlns="urn:partner.soap.sforce.com">'
            f"<e:Header><SessionHeader><sessionId>{self._org.token}</sessionId></SessionHeader></e:Header>"
            f"<e:Body>{operation}</e:Body></e:Envelope>"
        )
        connection = HTTPConnection(urlsplit(self._org.http).netloc, timeout=120)
        try:
            headers = {"Content-Type": "text/xml; charset=UTF-8", "SOAPAction": '""'}
            connection.request("POST", "/services/Soap/u/60.0", envelope.encode(), headers)
            response = connection.getresponse()
            text = response.read().decode()
            assert response.status == 200, text
            return text
        except (OSError, HTTPException) as error:
            raise InDoubt(repr(error)) from error
        finally:
            connection.close()

    def _entity(self) -> str:
        return self._dice.choice(list(FIELDS))

    def _pick(self, entity: str) -> str:
        return self._pick_several(entity, 1)[0]

    def _pick_several(self, entity: str, count: int = 12) -> list[str]:
        """Some recent records, made first if there are none."""
        with self._org.lock:
            known = self._org.ids[entity][-400:]
        if not known:
            record_id = self._rest.create(entity, self._new(entity))
            self._org.note(self._note_new(entity, [record_id]))
            known = [record_id]
        return self._dice.sample(known, min(count, len(known)))

    def _note_new(self, entity: str, ids: list[str]) -> int:
        with self._org.lock:
            self._org.ids[entity] += ids
        return len(ids)

    @staticmethod
    def _labelled(entity: str, values: Json) -> Json:
        return {"attributes": {"type": entity}, **values}

    def _new(self, entity: str) -> Json:
        values = {name: self._value(kind) for name, kind in _NEEDED.get(entity, {}).items()}
        if entity in _NAMED or entity.endswith("__c"):
            values["Name"] = self._text()
        return self._some(entity) | values

    def _some(self, entity: str) -> Json:
        """New values of some fields; now and then none at all."""
        fields = FIELDS[entity]
        chosen = self._dice.sample(list(fields), self._dice.randint(1, len(fields)))
        needed = _NEEDED.get(entity, {})
        return {
            name: None
            if self._dice.random() < 0.1 and name not in needed and fields[name] is not FLAG
            else self._value(fields[name])
            for name in chosen
        }

    def _value(self, kind: Any) -> Any:
        dice = self._dice
        if isinstance(kind, tuple):
            return dice.choice(kind)
        if isinstance(kind, int):
            return dice.randint(1, kind)
        if kind in FIELDS:
            return self._pick(kind)
        day = date(2024, 1, 1) + timedelta(days=dice.randrange(900))
        makers: dict[str, Callable[[], Any]] = {
            TEXT: self._text,
            LONG: self._long_text,
            NUMBER: lambda: dice.randint(-8000, 8000) / 100,
            FLAG: lambda: dice.random() < 0.5,
            DAY: day.isoformat,
            MOMENT: lambda: f"{day.isoformat()}T{dice.randrange(24):02}:30:00Z",
            TIME: lambda: f"{dice.randrange(24):02}:15:00Z",
            SEVERAL: lambda: ";".join(dice.sample(_COLOURS, dice.randint(1, 3))),
        }
        return makers[kind]()

    def _text(self) -> str:
        return f"{self._dice.choice(('Ærø', 'Oslo', 'Zürich', 'Łódź'))} {self._dice.randrange(10_000)}"

    def _long_text(self) -> str:
        if self._dice.random() < 0.2:
            return self._text()
        lines = list(_LINES)
        lines[self._dice.randrange(len(lines))] = self._text()
        return self._dice.choice(("\n", "\r\n")).join(lines)


def make_crowd(rest: Rest) -> list[str]:
    """So many records that one transaction can change more of them than it may tell."""
    ids: list[str] = []
    for start in range(0, CROWD, 200):
        records = [{"attributes": {"type": "Wide__c"}, "Name": f"Wide {start + n}"} for n in range(200)]
        results = rest.call("POST", f"{API}/composite/sobjects", {"allOrNone": True, "records": records})
        ids += [result["id"] for result in results]
    return ids


def overflow(rest: Rest, ids: list[str], salt: int) -> None:
    """Change every field of the crowd in one transaction."""
    requests = []
    for start in range(0, len(ids), 200):
        records = [
            {"attributes": {"type": "Wide__c"}, "id": record_id}
            | {f"N{n}__c": salt + place + n / 100 for n in range(1, NUMBERS + 1)}
            for place, record_id in enumerate(ids[start : start + 200], start)
        ]
        requests.append(
            {
                "method": "PATCH",
                "url": f"{API}/composite/sobjects",
                "referenceId": f"part{start}",
                "body": {"allOrNone": True, "records": records},
            }
        )
    answer = rest.call("POST", f"{API}/composite", {"allOrNone": True, "compositeRequest": requests})
    assert [part["httpStatusCode"] for part in answer["compositeResponse"]] == [200] * len(requests), answer
