"""Create an org: its profiles, its administrator and its standard rows."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from tidewire.access.apps import DEVICE, PASSWORD, USER_AGENT, WEB_SERVER, ConnectedApp, store_app
from tidewire.access.passwords import hash_token
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.events import Value
from tidewire.gate.definitions.apply import apply_definition, set_password
from tidewire.ids import POD, make_id
from tidewire.records.service import RecordService
from tidewire.records.table import insert_row
from tidewire.records.work import UnitOfWork
from tidewire.schema.standard.statuses import status_rows
from tidewire.storage.store import Reader

_ADMIN_PERMISSIONS = (
    "ViewAllData",
    "ModifyAllData",
    "ViewAllUsers",
    "ViewSetup",
    "CustomizeApplication",
    "AuthorApex",
    "ApiEnabled",
    "ManageUsers",
    "ManageEncryptionKeys",
)
# The sample content of a development org: captured objects, an event, and a user who may not see everything.
_DEV_DEFINITION: dict[str, object] = {
    "capture": ["Account", "Contact", "Opportunity"],
    "events": {
        "Order_Event__e": {
            "label": "Order Event",
            "fields": {
                "Order_Number__c": {"type": "Text", "length": 18},
                "City__c": {"type": "Text", "length": 100},
                "Amount__c": {"type": "Number"},
                "Has_Shipped__c": {"type": "Checkbox"},
            },
        }
    },
    "permission_sets": {
        "Account_Reader": {
            "label": "Account Reader",
            "permissions": ["ApiEnabled"],
            "objects": {"Account": ["read", "view_all"], "Contact": ["read"], "PushTopic": ["read"]},
            "fields": {
                "Account": {"*": "read", "AnnualRevenue": "none", "Phone": "none"},
                "Contact": {"*": "read"},
            },
        }
    },
    "users": {
        "reader@tidewire.local": {
            "password": DEV_PASSWORD,
            "first_name": "Rita",
            "last_name": "Reader",
            "permission_sets": ["Account_Reader"],
        }
    },
}


@dataclass(frozen=True, slots=True)
class OrgIdentity:
    """The id and name of an org."""

    org_id: str
    name: str


def try_read_identity(reader: Reader) -> OrgIdentity | None:
    """Read the org of a store, None if it has none."""
    found: dict[str, str] = dict(
        reader.execute("SELECT name, value FROM settings WHERE name IN ('org_id', 'org_name')")
    )
    return OrgIdentity(found["org_id"], found["org_name"]) if found else None


def draw_org_id() -> str:
    """Return a random id for a new org."""
    return make_id("00D", secrets.randbelow(62**6))


@dataclass(frozen=True, slots=True)
class NewOrg:
    """The parameters of a new org."""

    username: str
    password: str = field(repr=False)
    name: str = "Tidewire"
    org_id: str = field(default_factory=draw_org_id)


async def create_org(records: RecordService, new: NewOrg, *, is_dev: bool) -> OrgIdentity:
    """Create the org and its administrator in one transaction."""
    types, identity = records.types, OrgIdentity(new.org_id, new.name)
    admin_id = make_id("005", 1)

    def work(unit: UnitOfWork) -> None:
        types.ensure_stored(unit.tx)
        unit.tx.execute("INSERT INTO settings (name, value) VALUES ('org_id', ?)", (identity.org_id,))
        unit.tx.execute("INSERT INTO settings (name, value) VALUES ('org_name', ?)", (identity.name,))
        profiles = unit.catalog.object("Profile")
        flags = {f"Permissions{name}": True for name in _ADMIN_PERMISSIONS}
        unit.create(profiles, {"Name": "System Administrator", **flags})
        unit.create(profiles, {"Name": "Standard User", "PermissionsApiEnabled": True})
        document: dict[str, object] = {
            "users": {
                new.username: {
                    "profile": "System Administrator",
                    "first_name": "Ada",
                    "last_name": "Admin",
                    "alias": "admin",
                }
            }
        }
        apply_definition(unit, types, document, is_dry_run=False)
        set_password(unit, admin_id, new.password)
        _store_organization(unit, identity)
        for name, rows in status_rows().items():
            for row in rows:
                unit.create(unit.catalog.object(name), row)
        books = unit.catalog.object("Pricebook2")
        standard_id = unit.create(books, {"Name": "Standard Price Book", "IsActive": True})
        unit.store_derived(books, standard_id, {"IsStandard": True})
        if is_dev:
            apply_definition(unit, types, _DEV_DEFINITION, is_dry_run=False)
            store_app(unit.tx, _dev_app())

    await records.write(work, user_id=admin_id, exclusive=True)
    return identity


def _dev_app() -> ConnectedApp:
    """Return the development app, whose secret is public, for all flows that need no further setup."""
    return ConnectedApp(
        DEV_CLIENT_ID,
        "Development",
        hash_token(DEV_CLIENT_SECRET),
        callback_urls=("http://localhost/callback",),
        scopes=frozenset({"api", "refresh_token", "openid", "id", "profile", "email", "web", "full"}),
        flows=frozenset({PASSWORD, WEB_SERVER, USER_AGENT, DEVICE}),
    )


def _store_organization(unit: UnitOfWork, identity: OrgIdentity) -> None:
    """Insert the Organization row. Its id is the org's, so no record number is used."""
    organization = unit.catalog.object("Organization")
    second_ms = unit.now_ms - unit.now_ms % 1000
    row: dict[str, Value] = {f.name: f.default for f in organization.stored_fields if f.default is not None}
    row |= {"Id": identity.org_id, "Name": identity.name, "InstanceName": POD, "IsSandbox": False}
    row |= dict.fromkeys(("CreatedDate", "LastModifiedDate", "SystemModstamp"), second_ms)
    row |= dict.fromkeys(("CreatedById", "LastModifiedById"), unit.user_id)
    insert_row(unit.tx, organization, row)


DEV_LOGIN = (DEV_USERNAME, DEV_PASSWORD)
