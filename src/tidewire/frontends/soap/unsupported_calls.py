"""Calls of the WSDL that this server does not support.

Each fails with its reason once the session is verified, so that clients can tell it from a misspelt call.
"""

from __future__ import annotations

from tidewire.errors import FeatureUnavailable
from tidewire.frontends.soap.calls import Operation, SoapCall

_REASONS = {
    "sends no email": ("renderEmailTemplate", "renderStoredEmailTemplate", "sendEmail", "sendEmailMessage"),
    "has no approval processes": ("process",),
    "has no duplicate rules": ("findDuplicates", "findDuplicatesByIds"),
    "has no quick actions": (
        "describeAvailableQuickActions",
        "describeQuickActions",
        "describeQuickActionsForRecordType",
        "performQuickActions",
        "retrieveMassQuickActionTemplates",
        "retrieveQuickActionTemplates",
    ),
    "has no list views": ("describeSObjectListViews", "describeSoqlListViews", "executeListView"),
    "has no data categories": (
        "describeDataCategoryGroupStructures",
        "describeDataCategoryGroups",
        "describeDataCategoryMappings",
        "describeKnowledgeSettings",
    ),
    "has no pages of this kind": ("describePathAssistants", "describeSoftphoneLayout", "describeVisualForce"),
    "does not know nouns in other languages": ("describeNouns",),
    "does not delete by example": ("deleteByExample",),
}


def _unsupported(name: str, reason: str) -> Operation:
    async def fail(_call: SoapCall) -> str:
        raise FeatureUnavailable(f"{name} is not available: this server {reason}", feature=name)

    return fail


UNSUPPORTED: dict[str, Operation] = {
    name: _unsupported(name, reason) for reason, names in _REASONS.items() for name in names
}
"""The handler of each call."""
