"""The filter that skips changes by their origin."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.pipeline.histories import SCHEMAS, History
from tidewire.errors import SchemaUnknown
from tidewire.pipeline.source.change_origin_filter import OriginFilter, has_origin, parse_origins
from tidewire.pipeline.source.headers import HeaderReader


@pytest.mark.parametrize(
    "origin, own",
    [
        ("com/salesforce/api/rest/67.0;client=WriterBack", True),
        ("com/salesforce/api/soap/51.0; client=WriterBack", True),
        ("com/salesforce/api/soap/51.0;client=WriterBack/", True),
        ("com/salesforce/api/soap/51.0;client=SfdcInternalAPI/", True),
        ("com/salesforce/api/rest/67.0;client=WriterBackToo", False),
        ("com/salesforce/api/rest/67.0;client=writerback", False),
        ("com/salesforce/api/rest/67.0", False),
        ("com/salesforce/api/bulk/67.0", True),
        ("WriterBack", True),
        ("", False),
        (None, False),
    ],
)
def test_origin_is_own_by_its_client_or_as_a_whole(origin: str | None, own: bool) -> None:
    names = parse_origins(" WriterBack,,SfdcInternalAPI , com/salesforce/api/bulk/67.0")
    assert has_origin(origin, names) is own


def test_filter_leaves_out_own_changes_and_keeps_what_it_cannot_read() -> None:
    history = History()
    history.create("Account", {"Name": "a"})
    history.commit()
    (event,) = history.events
    schemas = {schema.schema_id: schema.json for versions in SCHEMAS.values() for schema in versions}
    _, _, _, origin, *_ = HeaderReader(schemas[event.schema_id]).read(event.payload)
    assert origin
    rows = pa.RecordBatch.from_pydict(
        {
            "replay_id": [1, 2, 3],
            "schema_id": [event.schema_id, event.schema_id, None],
            "payload": [event.payload, b"\xff", None],
        },
        schema=pa.schema([("replay_id", pa.int64()), ("schema_id", pa.string()), ("payload", pa.binary())]),
    )
    sifted = list(
        OriginFilter(frozenset([origin]), schemas.__getitem__).filter_batches([rows, rows.slice(0, 1)])
    )
    assert [batch["replay_id"].to_pylist() for batch in sifted] == [[2, 3]]
    untouched = list(OriginFilter(frozenset(["other"]), schemas.__getitem__).filter_batches([rows]))
    assert untouched == [rows]

    def refuse(schema_id: str) -> str:
        raise SchemaUnknown("nobody knows it", schema_id=schema_id)

    assert list(OriginFilter(frozenset([origin]), refuse).filter_batches([rows])) == [rows]
