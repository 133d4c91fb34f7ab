"""Events of an older schema as the newest one has them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidewire.errors import PayloadInvalid
from tidewire.schema.codec import EventSchema
from tidewire.schema.schema_resolution import SchemaResolution


def schema(**fields: Any) -> EventSchema:
    listed: list[dict[str, Any]] = [{"name": "CreatedDate", "type": "long"}]
    listed += [{"name": n, "type": ["null", kind], "default": None} for n, kind in fields.items()]
    document = {"type": "record", "name": "A__e", "namespace": "com.sforce.eventbus", "fields": listed}
    return EventSchema(json.dumps(document))


def test_field_that_is_new_is_null_and_one_that_is_gone_is_dropped() -> None:
    old, new = schema(Kept__c="string", Gone__c="string"), schema(New__c="double", Kept__c="string")
    payload = old.encode({"CreatedDate": 5, "Kept__c": "k", "Gone__c": "g"})
    resolved = SchemaResolution(old, new).resolve(payload)
    assert new.decode(resolved) == {"CreatedDate": 5, "New__c": None, "Kept__c": "k"}


def test_number_is_promoted() -> None:
    old, new = schema(N__c="int"), schema(N__c="double")
    resolved = SchemaResolution(old, new).resolve(old.encode({"CreatedDate": 5, "N__c": 3}))
    assert new.decode(resolved)["N__c"] == 3.0


def test_types_that_cannot_be_resolved_are_refused() -> None:
    old, new = schema(N__c="string"), schema(N__c="double")
    with pytest.raises(PayloadInvalid, match="cannot be resolved"):
        SchemaResolution(old, new).resolve(old.encode({"CreatedDate": 5, "N__c": "three"}))


def test_bytes_that_do_not_fit_the_older_schema_are_refused() -> None:
    old, new = schema(A__c="string"), schema(B__c="string")
    with pytest.raises(PayloadInvalid):
        SchemaResolution(old, new).resolve(b"\xff\xff")
