"""Calls of the schema that this server does not answer. Each is refused in so many words, after its session was
found good, so that a client can tell what is missing from what is misspelled.
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


def _refusal(name: str, reason: str) -> Operation:
    async def refuse(_call: SoapCall) -> str:
        raise FeatureUnavailable(f"{name} is not available: this server {reason}", feature=name)

    return refuse


REFUSED: dict[str, Operation] = {
    name: _refusal(name, reason) for reason, names in _REASONS.items() for name in names
}
"""What each of these calls does."""
