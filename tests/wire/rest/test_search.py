"""Search over the wire."""

from __future__ import annotations

import pytest

from tests.running import API, Refused, Rest


def test_search_answers_records_of_all_objects_in_one_list(rest: Rest) -> None:
    record_id = rest.create("Account", {"Name": "Wirelighthouse"})
    body = rest.call("GET", f"{API}/search?q=FIND+%7Bwirelight*%7D+RETURNING+Account(Name)")
    (record,) = body["searchRecords"]
    assert record["attributes"]["url"].endswith(record_id)
    assert record["Name"] == "Wirelighthouse"
    assert rest.call("GET", "/services/data/v36.0/search?q=FIND+%7Bwirelight%7D+RETURNING+Account(Name)")[0][
        "Name"
    ]


def test_search_without_braces_is_refused(rest: Rest) -> None:
    with pytest.raises(Refused, match="MALFORMED_SEARCH") as refused:
        rest.call("GET", f"{API}/search?q=FIND+x")
    assert refused.value.status == 400
