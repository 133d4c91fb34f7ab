"""An org with a field of every type, and what callers do with its metadata."""

from __future__ import annotations

from tests.orgs import TestOrg
from tidewire.gate.metadata.deploy import DeployOptions, Deploys
from tidewire.gate.metadata.retrieve import RetrieveOptions, Retrieves
from tidewire.gate.metadata.service import Metadata

EVERYTHING = {
    "CustomObject": ["*", "Account"],
    "PermissionSet": ["*"],
    "Profile": ["*"],
}


async def make_everything(org: TestOrg) -> None:
    """Define a field of every type, a platform event, a permission set and a profile."""
    await org.apply(
        objects={
            "Master__c": {
                "label": "Master",
                "plural": "Masters",
                "description": 'With "quotes" & <tags>',
                "name": {"type": "AutoNumber", "format": "M-{0000}", "label": "Number"},
                "sharing": "private",
                "record_types": {"Big": {"label": "Big one", "description": "Large"}},
                "fields": {
                    "Text__c": {"type": "Text", "length": 40, "unique": True, "case_sensitive": True},
                    "Key__c": {"type": "Text", "length": 20, "external_id": True, "default": 'a "b" \\c'},
                    "Area__c": {"type": "TextArea", "help_text": "Several\nlines", "required": True},
                    "Long__c": {"type": "LongTextArea", "length": 5000},
                    "Html__c": {"type": "RichTextArea", "length": 40000},
                    "Mail__c": {"type": "Email", "unique": True},
                    "Phone__c": {"type": "Phone"},
                    "Url__c": {"type": "Url"},
                    "Number__c": {"type": "Number", "precision": 10, "scale": 3, "default": 1.5},
                    "Money__c": {"type": "Currency"},
                    "Percent__c": {"type": "Percent", "precision": 5, "scale": 1, "default": 7},
                    "Plain__c": {"type": "Checkbox"},
                    "Ticked__c": {"type": "Checkbox", "default": True},
                    "Day__c": {"type": "Date", "default": "2024-02-29"},
                    "Moment__c": {"type": "DateTime", "default": "2024-02-29T01:02:03.000Z"},
                    "Time__c": {"type": "Time", "default": "01:02:03.004Z"},
                    "Pick__c": {
                        "type": "Picklist",
                        "values": ["Open", {"value": "Done", "label": "Finished"}, "Lost"],
                        "default": "Open",
                        "restricted": True,
                    },
                    "Multi__c": {"type": "MultiselectPicklist", "values": ["A", "B"], "default": "A;B"},
                    "Count__c": {"type": "AutoNumber", "format": "C-{00}"},
                    "Place__c": {"type": "Geolocation"},
                    "Link__c": {"type": "Lookup", "references": "Account", "child_relationship": "Masters"},
                    "Needed__c": {"type": "Lookup", "references": "Contact", "required": True},
                    "Sum_of__c": {
                        "type": "Currency",
                        "roll_up": {
                            "child": "Detail__c",
                            "child_field": "Master__c",
                            "function": "SUM",
                            "field": "Amount__c",
                            "filters": [["Good__c", "=", True], ["Amount__c", ">", 5]],
                        },
                    },
                    "Children__c": {
                        "type": "Number",
                        "roll_up": {"child": "Detail__c", "child_field": "Master__c", "function": "COUNT"},
                    },
                    "Double__c": {"type": "Number", "formula": "Number__c * 2", "precision": 18, "scale": 2},
                    "Shout__c": {"type": "Text", "formula": "UPPER(Text__c)"},
                    "Rich__c": {"type": "Checkbox", "formula": "Money__c > 5"},
                },
            },
            "Detail__c": {
                "fields": {
                    "Master__c": {
                        "type": "MasterDetail",
                        "references": "Master__c",
                        "child_relationship": "Details",
                        "reparentable": True,
                    },
                    "Amount__c": {"type": "Currency"},
                    "Good__c": {"type": "Checkbox"},
                }
            },
            "Account": {"fields": {"Extra__c": {"type": "Text", "length": 10}}},
        },
        events={
            "Happened__e": {
                "label": "Happened",
                "fields": {
                    "What__c": {"type": "Text", "length": 80, "required": True},
                    "Amount__c": {"type": "Number", "precision": 9, "scale": 1},
                    "Is__c": {"type": "Checkbox", "default": True},
                    "On__c": {"type": "Date"},
                    "At__c": {"type": "DateTime"},
                    "Long__c": {"type": "LongTextArea", "length": 1000},
                },
            }
        },
        permission_sets={
            "Clerk": {
                "label": "Clerks",
                "description": "Those who work",
                "objects": {"Master__c": ["create", "read", "edit"], "Happened__e": ["create", "read"]},
                "fields": {"Master__c": {"*": "edit", "Text__c": "read"}},
            }
        },
        profiles={
            "Cashier": {
                "permissions": ["ApiEnabled"],
                "objects": {"Account": ["read"]},
                "fields": {"Account": {"Extra__c": "read"}},
            }
        },
    )
    await org.apply(
        objects={"Master__c": {"fields": {"Pick__c": {"type": "Picklist", "deactivate": ["Done"]}}}}
    )


def services(org: TestOrg) -> tuple[Metadata, Deploys, Retrieves]:
    """What the front ends use."""
    metadata = Metadata(org.gate)
    return metadata, Deploys(metadata, org.clock), Retrieves(metadata)


async def retrieve(org: TestOrg, members: dict[str, list[str]], *, is_single: bool = True) -> bytes:
    """The archive of a retrieve."""
    _, _, retrieves = services(org)
    options = RetrieveOptions(members, "62.0", is_single_package=is_single)
    request_id = await retrieves.retrieve(org.call, options)
    _, archive = await retrieves.result(org.admin, request_id)
    return archive


async def deploy(
    org: TestOrg, archive: bytes, *, is_single: bool = True, is_check_only: bool = False
) -> dict[str, object]:
    """The result of a deploy."""
    _, deploys, _ = services(org)
    options = DeployOptions(is_check_only=is_check_only, is_single_package=is_single)
    return await deploys.result(org.admin, await deploys.deploy(org.call, archive, options))
