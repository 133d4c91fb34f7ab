"""Calls that merge records or convert leads: merge and convertLead."""

from __future__ import annotations

from dataclasses import replace
from xml.etree.ElementTree import Element

from tidewire.crm.leads import Conversion
from tidewire.errors import BodyMalformed, RequestError, RequiredFieldMissing
from tidewire.frontends.soap.calls import SoapCall, check_count
from tidewire.frontends.soap.dml import read_values
from tidewire.frontends.soap.values import SObject, parse_sobject
from tidewire.frontends.soap.wire import (
    XSI_TYPE,
    render_element,
    render_elements,
    text_of,
)
from tidewire.frontends.soap.wire_errors import render_row_error
from tidewire.transport.xml_trees import is_nil, local_name

MAX_CONVERSIONS = 100
_RECORDS = {"accountRecord": "Account", "contactRecord": "Contact", "opportunityRecord": "Opportunity"}


async def merge(call: SoapCall) -> str:
    """Merge up to three records for each request; each merge is its own transaction.

    The requests are in `request` elements, as in the WSDL, or in `mergeRequests`, as some clients send them.
    """
    requests = list(call.request.all("request", "mergeRequests"))
    check_count(requests)
    parsed = []
    for element in requests:
        master, loser_ids = _parse_merge(element)
        parsed.append((await read_values(call, master, truncates=False), loser_ids))
    return "".join([await _merge(call, master, loser_ids) for master, loser_ids in parsed])


def _parse_merge(element: Element) -> tuple[SObject, list[str]]:
    masters = [child for child in element if local_name(child) == "masterRecord"]
    if len(masters) != 1:
        raise BodyMalformed("A merge request needs one masterRecord")
    loser_ids = [text_of(child) for child in element if local_name(child) == "recordToMergeIds"]
    for pair in (child for child in element if local_name(child) == "additionalInformationMap"):
        if is_nil(pair):
            continue
        given = {local_name(part): text_of(part) for part in pair}
        # Our merges use none of this information, so only its form is checked.
        if not given.get("name") or not given.keys() <= {"name", "value"}:
            raise BodyMalformed("Each additionalInformationMap needs a name and a value")
    return parse_sobject(masters[0]), loser_ids


async def _merge(call: SoapCall, master: SObject, loser_ids: list[str]) -> str:
    try:
        merged = await call.gate.merge(
            call.context, master.entity, master.record_id, loser_ids, master.values
        )
    except RequestError as error:
        return f'<result>{render_row_error(error)}<id xsi:nil="true"/><success>false</success></result>'
    losers = render_elements(("mergedRecordIds", record_id) for record_id in merged.merged_ids)
    related = render_elements(("updatedRelatedIds", record_id) for record_id in merged.updated_related_ids)
    return (
        f"<result>{render_element('id', merged.record_id)}{losers}<success>true</success>{related}</result>"
    )


async def convert_lead(call: SoapCall) -> str:
    """Convert leads; each conversion is its own transaction."""
    elements = list(call.request.all("leadConverts"))
    check_count(elements, MAX_CONVERSIONS)
    return "".join([await _convert(call, element) for element in elements])


async def _convert(call: SoapCall, element: Element) -> str:
    given = {local_name(child): text_of(child) for child in element if not is_nil(child)}
    try:
        for name in ("leadId", "convertedStatus"):
            if not given.get(name):
                raise RequiredFieldMissing(f"Required fields are missing: [{name}]", fields=[name])
        values = {name: await _read_record(call, element, name) for name in _RECORDS}
        conversion = replace(
            _parse_conversion(given),
            account_values=values["accountRecord"],
            contact_values=values["contactRecord"],
            opportunity_values=values["opportunityRecord"],
        )
        converted = await call.gate.convert_lead(call.context, conversion)
    except RequestError as error:
        lead_id = given.get("leadId") or None
        return (
            f'<result><accountId xsi:nil="true"/><contactId xsi:nil="true"/>{render_row_error(error)}'
            f'{render_element("leadId", lead_id)}<opportunityId xsi:nil="true"/><success>false</success></result>'
        )
    inner = render_elements(
        (
            ("accountId", converted.account_id),
            ("contactId", converted.contact_id),
            ("leadId", converted.lead_id),
            ("opportunityId", converted.opportunity_id),
            ("success", True),
        )
    )
    return f"<result>{inner}</result>"


async def _read_record(call: SoapCall, element: Element, name: str) -> dict[str, object]:
    """Return the values that a conversion sets on one of its records; empty if absent."""
    found = next((child for child in element if local_name(child) == name and not is_nil(child)), None)
    if found is None:
        return {}
    entity = _RECORDS[name]
    if XSI_TYPE not in found.attrib:  # the enterprise schema implies the type
        found.set(XSI_TYPE, entity)
    record = parse_sobject(found)
    if record.entity.lower() != entity.lower() or record.record_id:
        raise BodyMalformed(f"{name} must be an {entity} without an Id")
    return dict((await read_values(call, record, truncates=False)).values)


def _parse_conversion(given: dict[str, str]) -> Conversion:
    def flag(name: str) -> bool:
        return given.get(name, "").lower() in ("true", "1")

    return Conversion(
        lead_id=given["leadId"],
        converted_status=given["convertedStatus"],
        account_id=given.get("accountId") or None,
        contact_id=given.get("contactId") or None,
        opportunity_id=given.get("opportunityId") or None,
        opportunity_name=given.get("opportunityName") or None,
        makes_opportunity=not flag("doNotCreateOpportunity"),
        overwrites_lead_source=flag("overwriteLeadSource"),
        owner_id=given.get("ownerId") or None,
    )
