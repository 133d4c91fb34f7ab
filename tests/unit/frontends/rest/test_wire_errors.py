"""The REST error table: complete, and its bytes pinned."""

from __future__ import annotations

import pytest

from tidewire import errors
from tidewire.errors import PlatformError, leaf_errors
from tidewire.frontends.rest.wire_errors import REST_ERRORS, render_error, render_protocol_error
from tidewire.transport.http import HttpRequest

GET = HttpRequest("GET", "/services/data/v59.0/x", {})
POST = HttpRequest("POST", "/services/data/v59.0/x", {})


def test_table_has_a_row_for_every_leaf_and_no_other() -> None:
    assert set(REST_ERRORS) == set(leaf_errors())


@pytest.mark.parametrize(
    "error, status, body",
    [
        (
            errors.SessionInvalid("gone"),
            401,
            b'[{"message":"Session expired or invalid","errorCode":"INVALID_SESSION_ID"}]',
        ),
        (
            errors.AuthHeaderInvalid("none"),
            401,
            b'[{"message":"INVALID_HEADER_TYPE","errorCode":"INVALID_AUTH_HEADER"}]',
        ),
        (
            errors.SoqlSyntaxError("unexpected token: FORM", row=1, column=11, query="SELECT Id FORM X"),
            400,
            b'[{"message":"unexpected token: FORM","errorCode":"MALFORMED_QUERY"}]',
        ),
        (
            errors.FieldUnknown("No such column 'X' on sobject of type Account", field="X", fields=["X"]),
            400,
            b'[{"message":"No such column \'X\' on sobject of type Account","errorCode":"INVALID_FIELD"}]',
        ),
        (
            errors.RequiredFieldMissing("Required fields are missing: [LastName]", fields=["LastName"]),
            400,
            b'[{"message":"Required fields are missing: [LastName]","errorCode":"REQUIRED_FIELD_MISSING",'
            b'"fields":["LastName"]}]',
        ),
        (
            errors.NumberOutOfRange("Maximum SOQL offset allowed is 2000"),
            400,
            b'[{"message":"Maximum SOQL offset allowed is 2000","errorCode":"NUMBER_OUTSIDE_VALID_RANGE"}]',
        ),
        (
            errors.NumberOutOfRange("Employees: value outside", fields=["NumberOfEmployees"]),
            400,
            b'[{"message":"Employees: value outside","errorCode":"NUMBER_OUTSIDE_VALID_RANGE",'
            b'"fields":["NumberOfEmployees"]}]',
        ),
        (
            errors.DuplicateValue("duplicate value found", fields=["Ext__c"], record_id="001"),
            400,
            b'[{"message":"duplicate value found","errorCode":"DUPLICATE_VALUE","fields":[]}]',
        ),
        (
            errors.RecordDeleted("row 7 is in the bin", record_id="001"),
            404,
            b'[{"message":"entity is deleted","errorCode":"ENTITY_IS_DELETED","fields":[]}]',
        ),
        (
            errors.RecordNotFound("row 7 is missing", record_id="001"),
            404,
            b'[{"message":"The requested resource does not exist","errorCode":"NOT_FOUND"}]',
        ),
        (
            errors.VersionUnsupported("v99.0"),
            404,
            b'[{"message":"The requested resource does not exist","errorCode":"NOT_FOUND"}]',
        ),
        (
            errors.MediaTypeUnsupported("send JSON"),
            415,
            b'[{"message":"send JSON","errorCode":"UNSUPPORTED_MEDIA_TYPE"}]',
        ),
        (
            errors.PreconditionFailed("it has changed"),
            412,
            b'[{"message":"it has changed","errorCode":"PRECONDITION_FAILED"}]',
        ),
        (
            errors.AccessDenied("not for you", permission="ApiEnabled"),
            403,
            b'[{"message":"not for you","errorCode":"API_DISABLED_FOR_ORG"}]',
        ),
        (
            errors.ResourceUnknown("no such key: X", external_id="X"),
            404,
            b'[{"message":"no such key: X","errorCode":"NOT_FOUND"}]',
        ),
        (
            errors.BodyTooLarge("too large", limit_bytes=1),
            413,
            b'[{"message":"too large","errorCode":"REQUEST_ENTITY_TOO_LARGE"}]',
        ),
    ],
)
def test_error_is_answered_with_these_bytes(error: PlatformError, status: int, body: bytes) -> None:
    response = render_error(GET, error)
    assert (response.status, response.body) == (status, body)
    assert response.content_type == "application/json;charset=UTF-8"


def test_missing_record_is_a_bad_reference_to_a_writer() -> None:
    response = render_error(POST, errors.RecordNotFound("row 7 is missing", record_id="001"))
    assert response.status == 404
    assert response.body == (
        b'[{"message":"invalid cross reference id","errorCode":"INVALID_CROSS_REFERENCE_KEY","fields":[]}]'
    )


def test_method_not_allowed_lists_the_allowed_ones() -> None:
    response = render_error(POST, errors.MethodNotAllowed("no", allowed=("GET", "PATCH")))
    assert response.status == 405
    assert ("Allow", "GET, PATCH") in response.headers


@pytest.mark.parametrize("leaf", [leaf for leaf in leaf_errors() if leaf.code in ("internal", "log_corrupt")])
def test_internal_error_hides_its_cause(leaf: type[PlatformError]) -> None:
    response = render_error(GET, leaf("/secret/path at offset 7"))
    assert response.status == 500
    assert b"secret" not in response.body
    assert b"UNKNOWN_EXCEPTION" in response.body


@pytest.mark.parametrize(
    "leaf", [leaf for leaf in leaf_errors() if issubclass(leaf, errors.StorageError) and leaf.retryable]
)
def test_retryable_storage_error_has_retry_after_and_hides_the_disk(leaf: type[PlatformError]) -> None:
    response = render_error(POST, leaf("/var/lib/secret is full"))
    assert response.status == 503
    assert ("Retry-After", "1") in response.headers
    assert b"secret" not in response.body


def test_unauthorised_answer_has_www_authenticate() -> None:
    assert ("WWW-Authenticate", "Token") in render_error(GET, errors.SessionInvalid("x")).headers


def test_protocol_error_has_the_form_of_an_error() -> None:
    response = render_protocol_error(GET, 400, "INVALID_QUERY_LOCATOR", "invalid query locator")
    assert response.body == b'[{"message":"invalid query locator","errorCode":"INVALID_QUERY_LOCATOR"}]'
