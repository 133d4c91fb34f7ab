"""Share objects: their rows open single records to a user or a group.

Seven standard objects have one, and so has every custom object whose records have an owner. Their types are derived
from the object and stored nowhere; their tables have its number: `o1_s` holds the shares of `o1_0`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from tidewire.schema.fields import picklist, required_parent
from tidewire.schema.layout import audit_fields, identity_fields, with_columns
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.standard.access import SHARE_PREFIXES, SHARED_CHILDREN, SHARES_NAMED_ALIKE

SHARE_LEVELS = "Read;Edit;All"
MANUAL = "Manual"
OWNER, RULE, IMPLICIT_CHILD, IMPLICIT_PARENT = "Owner", "Rule", "ImplicitChild", "ImplicitParent"
"""Why a record is open to somebody. Only what was shared by hand is stored; the rest follows when it is read."""


def share_name(entity: str) -> str:
    """Return the name of an object's share object, whether or not it has one."""
    return entity.removesuffix("__c") + "__Share" if entity.endswith("__c") else entity + "Share"


def shared_entity(name: str) -> str:
    """Return the object whose records this share object opens, or an empty text if it is not a share object."""
    if name.endswith("__Share"):
        return name.removesuffix("__Share") + "__c"
    entity = name.removesuffix("Share")
    return entity if entity != name and entity in SHARE_PREFIXES else ""


def has_shares(obj: ObjectType) -> bool:
    """Return whether records of the object can be shared one by one."""
    is_owned = "ownerid" in obj.by_name and not any(f.is_master_detail for f in obj.fields)
    return is_owned and (obj.custom or obj.name in SHARE_PREFIXES)


def parent_field(share: ObjectType) -> Field:
    """Return the field of a share that names the record it opens."""
    return (
        share.by_name["parentid"]
        if "parentid" in share.by_name
        else share.by_name[f"{share.shares}id".lower()]
    )


def level_field(share: ObjectType) -> Field:
    """Return the field of a share with the access level that it gives."""
    own = share.try_field("AccessLevel")
    return own if own is not None else share.by_name[f"{share.shares}accesslevel".lower()]


def with_shares(objects: Iterable[ObjectType]) -> tuple[ObjectType, ...]:
    """Return these objects, followed by the share objects of those that can be shared."""
    own = [o for o in objects if not o.shares]
    shares = [_share_object(o.name, o.label, o.custom, o.key_prefix, o.table) for o in own if has_shares(o)]
    return (*own, *shares)


@lru_cache(maxsize=4096)  # one and the same object for every version of the catalog
def _share_object(entity: str, label: str, custom: bool, key_prefix: str, table: str) -> ObjectType:
    is_plain = custom or entity in SHARES_NAMED_ALIKE
    name = "Parent" if is_plain else entity
    level = "" if is_plain else entity
    also = SHARED_CHILDREN.get(entity, ())
    fields = (
        *identity_fields(),
        required_parent(f"{name}Id", f"{label} ID", entity, name, "Shares"),
        required_parent("UserOrGroupId", "User/Group ID", ("Group", "User"), "UserOrGroup"),
        picklist(f"{level}AccessLevel", f"{label} Access", SHARE_LEVELS, restricted=True, required=True),
        *(
            picklist(
                f"{each}AccessLevel", f"{each} Access", "None;Read;Edit", restricted=True, default="None"
            )
            for each in also
        ),
        picklist(
            "RowCause",
            "Row Cause",
            ";".join((OWNER, MANUAL, RULE, IMPLICIT_CHILD, IMPLICIT_PARENT)),
            updateable=False,
            default=MANUAL,
        ),
        *(f for f in audit_fields() if f.name.startswith("LastModified")),
    )
    return ObjectType(
        name=share_name(entity),
        label=f"{label} Share",
        label_plural=f"{label} Share",
        key_prefix="s" + key_prefix[1:] if custom else SHARE_PREFIXES[entity],
        fields=with_columns(fields),
        table=table.partition("_")[0] + "_s",
        is_setup=True,
        shares=entity,
    )
