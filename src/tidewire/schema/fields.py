"""Constructors of fields, one per type, with the lengths and defaults that the type usually has."""

from __future__ import annotations

from dataclasses import replace

from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, PicklistValue

GEOCODE_ACCURACIES = "Address;NearAddress;Block;Street;ExtendedZip;Zip;Neighborhood;City;County;State;Unknown"
SALUTATIONS = "Mr.;Ms.;Mrs.;Dr.;Prof."


def choices(values: str, default: str | None = None) -> tuple[PicklistValue, ...]:
    """Picklist values from a `;`-joined text, each its own label."""
    return tuple(
        PicklistValue(value, value, is_default=value == default) for value in values.split(";") if value
    )


def text(name: str, label: str, length: int, *, required: bool = False, unique: bool = False) -> Field:
    """One line of text."""
    return Field(name=name, label=label, type=FieldType.TEXT, length=length, required=required, unique=unique)


def text_area(name: str, label: str, length: int = 255) -> Field:
    """A few lines of text."""
    return Field(name=name, label=label, type=FieldType.TEXT_AREA, length=length)


def rich_text(name: str, label: str, length: int = 32_000) -> Field:
    """Text with markup, too long to filter or sort by."""
    return Field(name=name, label=label, type=FieldType.RICH_TEXT, length=length)


def auto_number(name: str, label: str, display_format: str, *, start_number: int = 1) -> Field:
    """A number that the platform counts up, shown as the format says."""
    return Field(
        name=name,
        label=label,
        type=FieldType.AUTO_NUMBER,
        length=30,
        display_format=display_format,
        start_number=start_number,
        createable=False,
        updateable=False,
    )


def long_text(name: str, label: str, length: int = 32_000) -> Field:
    """Text too long to filter or sort by."""
    return Field(name=name, label=label, type=FieldType.LONG_TEXT, length=length)


def email(name: str, label: str, length: int, *, required: bool = False) -> Field:
    """An email address."""
    return Field(name=name, label=label, type=FieldType.EMAIL, length=length, required=required)


def phone(name: str, label: str) -> Field:
    """A telephone number, stored as sent."""
    return Field(name=name, label=label, type=FieldType.PHONE, length=40)


def url(name: str, label: str) -> Field:
    """A web address, stored as sent."""
    return Field(name=name, label=label, type=FieldType.URL, length=255)


def picklist(
    name: str,
    label: str,
    values: str,
    *,
    length: int = 40,
    restricted: bool = False,
    required: bool = False,
    updateable: bool = True,
    default: str | None = None,
) -> Field:
    """One of the `;`-joined values, or any other text unless restricted."""
    return Field(
        name=name,
        label=label,
        type=FieldType.PICKLIST,
        length=length,
        picklist=choices(values, default),
        restricted=restricted,
        required=required,
        updateable=updateable,
        default=default,
    )


def multi_picklist(
    name: str, label: str, values: str, *, length: int = 4099, restricted: bool = False
) -> Field:
    """Any number of the `;`-joined values."""
    return Field(
        name=name,
        label=label,
        type=FieldType.MULTI_PICKLIST,
        length=length,
        picklist=choices(values),
        restricted=restricted,
    )


def lookup(
    name: str,
    label: str,
    target: str | tuple[str, ...],
    relationship_name: str,
    child_relationship_name: str = "",
    *,
    required: bool = False,
    updateable: bool = True,
    delete_constraint: str = "SetNull",
) -> Field:
    """The id of a record of `target`, or of one of several."""
    return Field(
        name=name,
        label=label,
        type=FieldType.REFERENCE,
        length=18,
        reference_to=(target,) if isinstance(target, str) else target,
        relationship_name=relationship_name,
        child_relationship_name=child_relationship_name,
        required=required,
        updateable=updateable,
        delete_constraint=delete_constraint,
    )


def required_parent(
    name: str,
    label: str,
    target: str | tuple[str, ...],
    relationship_name: str,
    child_relationship_name: str = "",
    *,
    updateable: bool = False,
) -> Field:
    """The id of a record that this one needs and is deleted with; fixed unless updateable."""
    return lookup(
        name,
        label,
        target,
        relationship_name,
        child_relationship_name,
        required=True,
        updateable=updateable,
        delete_constraint="Cascade",
    )


def detail(
    name: str,
    label: str,
    master: str,
    relationship_name: str,
    child_relationship_name: str,
    *,
    updateable: bool = False,
) -> Field:
    """The id of the master that the record belongs to, and is deleted with; fixed unless updateable."""
    return replace(
        lookup(name, label, master, relationship_name, child_relationship_name),
        required=True,
        updateable=updateable,
        is_master_detail=True,
        delete_constraint="Cascade",
    )


def checkbox(name: str, label: str, *, default: bool = False) -> Field:
    """True or false, never null."""
    return Field(name=name, label=label, type=FieldType.CHECKBOX, default=default)


def integer(name: str, label: str, digits: int, *, default: int | None = None) -> Field:
    """A whole number of at most `digits` digits."""
    return Field(name=name, label=label, type=FieldType.INTEGER, precision=digits, default=default)


def double(name: str, label: str, precision: int, scale: int, *, required: bool = False) -> Field:
    """A number of `precision` digits, `scale` of them after the point."""
    return Field(
        name=name, label=label, type=FieldType.NUMBER, precision=precision, scale=scale, required=required
    )


def currency(name: str, label: str, precision: int, scale: int, *, required: bool = False) -> Field:
    """An amount in the org's currency."""
    return Field(
        name=name, label=label, type=FieldType.CURRENCY, precision=precision, scale=scale, required=required
    )


def percent(name: str, label: str, precision: int, scale: int) -> Field:
    """A number of percents: 50 is one half."""
    return Field(name=name, label=label, type=FieldType.PERCENT, precision=precision, scale=scale)


def date(name: str, label: str, *, required: bool = False) -> Field:
    """A day."""
    return Field(name=name, label=label, type=FieldType.DATE, required=required)


def datetime(name: str, label: str, *, required: bool = False) -> Field:
    """A moment, to the millisecond."""
    return Field(name=name, label=label, type=FieldType.DATETIME, required=required)


def read_only(field: Field) -> Field:
    """Return the field as one that API callers cannot set."""
    return replace(field, createable=False, updateable=False)


def derived(field: Field) -> Field:
    """Return the field as a derived one: read only, and not in change events."""
    return replace(read_only(field), in_change_events=False)


def system(
    name: str,
    label: str,
    type_: FieldType,
    *,
    length: int = 0,
    default: bool | None = None,
    in_change_events: bool = True,
) -> Field:
    """A field that the platform sets."""
    return Field(
        name=name,
        label=label,
        type=type_,
        length=length,
        default=default,
        createable=False,
        updateable=False,
        is_system=True,
        in_change_events=in_change_events,
    )


def address(prefix: str) -> tuple[Field, ...]:
    """A postal address: the compound `<prefix>Address`, then its eight components in wire order."""
    compound = prefix + "Address"
    parts = (
        ("Street", "Street", FieldType.TEXT_AREA, 255),
        ("City", "City", FieldType.TEXT, 40),
        ("State", "State/Province", FieldType.TEXT, 80),
        ("PostalCode", "Zip/Postal Code", FieldType.TEXT, 20),
        ("Country", "Country", FieldType.TEXT, 80),
        ("Latitude", "Latitude", FieldType.NUMBER, 0),
        ("Longitude", "Longitude", FieldType.NUMBER, 0),
        ("GeocodeAccuracy", "Geocode Accuracy", FieldType.PICKLIST, 40),
    )
    return (
        Field(
            name=compound,
            label=f"{prefix} Address".strip(),
            type=FieldType.ADDRESS,
            createable=False,
            updateable=False,
        ),
        *(
            Field(
                name=prefix + part,
                label=f"{prefix} {label}".strip(),
                type=type_,
                length=length,
                precision=18 if type_ is FieldType.NUMBER else 0,
                scale=15 if type_ is FieldType.NUMBER else 0,
                picklist=choices(GEOCODE_ACCURACIES) if type_ is FieldType.PICKLIST else (),
                restricted=type_ is FieldType.PICKLIST,
                compound=compound,
                component=part,
            )
            for part, label, type_, length in parts
        ),
    )


def location(name: str, label: str, *, required: bool = False) -> tuple[Field, ...]:
    """A place on the globe: the compound `X__c`, then `X__Latitude__s` and `X__Longitude__s` in degrees."""
    stem = name.removesuffix("__c")
    return (
        Field(name=name, label=label, type=FieldType.LOCATION, createable=False, updateable=False),
        *(
            Field(
                name=f"{stem}__{part}__s",
                label=f"{label} ({part})",
                type=FieldType.NUMBER,
                precision=18,
                scale=15,
                required=required,
                compound=name,
                component=part,
            )
            for part in ("Latitude", "Longitude")
        ),
    )


def person_name(label: str, *, has_salutation: bool, column: str = "") -> tuple[Field, ...]:
    """A person's name: the compound `Name`, then its components in wire order. The last name is required.

    `column` holds the joined name in objects that were laid out before it had a column.
    """
    compound = Field(
        name="Name",
        label=label,
        type=FieldType.PERSON_NAME,
        length=121,
        createable=False,
        updateable=False,
        column=column,
    )
    parts = [text("FirstName", "First Name", 40), text("LastName", "Last Name", 80, required=True)]
    if has_salutation:
        parts.insert(0, picklist("Salutation", "Salutation", SALUTATIONS))
    return (compound, *(replace(part, compound="Name", component=part.name) for part in parts))
