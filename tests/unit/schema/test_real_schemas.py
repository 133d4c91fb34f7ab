"""The schema that the real service had for the accounts of one org, as captured with its events."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from tidewire.schema.avro import change_event_schema, schema_id
from tidewire.schema.field_types import FieldType
from tidewire.schema.fields import address, checkbox, derived, location, person_name
from tidewire.schema.layout import identity_fields
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.standard.people import PERSON_ACCOUNT, PERSON_CONTACT

# The fields of that org in their order: standard ones, those of persons, its own, and those of its contacts.
_FIELDS = """
Name:Text Type:Picklist RecordTypeId:Lookup ParentId:Lookup Billing:Address Shipping:Address Phone:Phone
Fax:Phone AccountNumber:Text Website:Url Sic:Text Industry:Picklist AnnualRevenue:Currency
NumberOfEmployees:Integer Ownership:Picklist TickerSymbol:Text Description:LongTextArea Rating:Picklist Site:Text
OwnerId:Lookup CreatedDate:DateTime CreatedById:Lookup LastModifiedDate:DateTime LastModifiedById:Lookup
PersonContactId:Lookup PersonMailing:Address PersonOther:Address PersonMobilePhone:Phone PersonHomePhone:Phone
PersonOtherPhone:Phone PersonAssistantPhone:Phone PersonEmail:Email PersonTitle:Text PersonDepartment:Text
PersonAssistantName:Text PersonLeadSource:Picklist PersonBirthdate:Date PersonHasOptedOutOfEmail:Checkbox
PersonHasOptedOutOfFax:Checkbox PersonDoNotCall:Checkbox PersonLastCURequestDate:DateTime
PersonLastCUUpdateDate:DateTime PersonEmailBouncedReason:Text PersonEmailBouncedDate:DateTime
PersonIndividualId:Lookup PersonPronouns:Picklist PersonGenderIdentity:Picklist Jigsaw:Text JigsawCompanyId:Text
CleanStatus:Picklist AccountSource:Picklist DunsNumber:Text Tradestyle:Text NaicsCode:Text NaicsDesc:Text
YearStarted:Text SicDesc:Text DandbCompanyId:Lookup OperatingHoursId:Lookup CustomerPriority__c:Picklist
SLA__c:Picklist Active__c:Picklist NumberofLocations__c:Number UpsellOpportunity__c:Picklist SLASerialNumber__c:Text
SLAExpirationDate__c:Date Some_phone__c:Phone Amount_Owed__c:Currency Some_Date_Time__c:DateTime Some_Date__c:Date
Some_Email__c:Email Some_Geolocation__c:Geolocation Some_Number__c:Number Some_Percent__c:Percent
Some_Picklist__c:Picklist Some_Multipicklist__c:MultiselectPicklist Some_Text__c:Text
Some_Rich_Text_Area__c:RichTextArea Some_Time__c:Time Some_URL__c:Url GUID__c:Text Some_Check_Box__c:Checkbox
Level__pc:Picklist Languages__pc:Text GUID__pc:Text
"""

TYPES = {each.value: each for each in FieldType}


def _with_codes(parts: tuple[Field, ...]) -> tuple[Field, ...]:
    """An address in an org with state and country picklists, whose codes follow the country."""
    country = next(part for part in parts if part.component == "Country")
    codes = [
        replace(country, name=country.name + "Code", component="CountryCode"),
        replace(country, name=country.name.replace("Country", "StateCode"), component="StateCode"),
    ]
    at = parts.index(country) + 1
    return (*parts[:at], *reversed(codes), *parts[at:])


def _fields(name: str, kind: str) -> tuple[Field, ...]:
    if kind == "Address":
        return _with_codes(address(name))
    if kind == "Geolocation":
        return location(name, name)
    return (Field(name=name, label=name, type=TYPES[kind]),)


def test_schema_id_of_accounts_captured_at_the_real_service_is_that_of_their_events() -> None:
    parts = [
        replace(part, compound="", in_change_events=False)
        for part in person_name("Name", has_salutation=True)
    ]
    account = ObjectType(
        name="Account",
        label="Account",
        label_plural="Accounts",
        key_prefix="001",
        fields=(
            *(replace(f, in_change_events=False) for f in identity_fields()),
            *chain.from_iterable(_fields(*pair.split(":")) for pair in _FIELDS.split()),
            *parts[1:],
            derived(checkbox("IsPersonAccount", "Is Person Account")),
        ),
    )
    assert schema_id(change_event_schema(account)) == "i8wgJwwM-AVcDbFkbRl5Nw"


def test_places_of_a_persons_fields_are_those_of_the_real_service() -> None:
    own = [f["name"] for f in change_event_schema(PERSON_ACCOUNT)["fields"]]
    real = ["ChangeEventHeader"]
    for pair in _FIELDS.split():
        name, kind = pair.split(":")
        real.append(name + "Address" if kind == "Address" else name)
    assert own == [name for name in real if name in own]
    contact = [f["name"] for f in change_event_schema(PERSON_CONTACT)["fields"]]
    assert contact[1:4] == ["AccountId", "IsPersonAccount", "Name"]
