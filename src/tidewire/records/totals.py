"""The totals that standard objects keep of the records below them.

They are roll-ups in all but name: no definition brings them, they need no master-detail field, and describes do
not call them calculated. `tidewire.records.rollups` keeps them together with those that definitions bring.
"""

from __future__ import annotations

from tidewire.schema.model import Field, ObjectType, RollUp

_MEMBERS = ("CampaignMember", "CampaignId")
_DEALS = ("Opportunity", "CampaignId")
_LINES = ("OpportunityLineItem", "OpportunityId")
_QUOTED = ("QuoteLineItem", "QuoteId")
_AGREED = ("ContractLineItem", "ServiceContractId")

TOTALS: dict[str, dict[str, RollUp]] = {
    "Campaign": {
        "NumberOfLeads": RollUp(*_MEMBERS, "COUNT", "", (("LeadId", "!=", None),)),
        "NumberOfConvertedLeads": RollUp(
            *_MEMBERS, "COUNT", "", (("LeadId", "!=", None), ("ContactId", "!=", None))
        ),
        "NumberOfContacts": RollUp(*_MEMBERS, "COUNT", "", (("ContactId", "!=", None),)),
        "NumberOfResponses": RollUp(*_MEMBERS, "COUNT", "", (("HasResponded", "=", True),)),
        "NumberOfOpportunities": RollUp(*_DEALS, "COUNT"),
        "NumberOfWonOpportunities": RollUp(*_DEALS, "COUNT", "", (("IsWon", "=", True),)),
        "AmountAllOpportunities": RollUp(*_DEALS, "SUM", "Amount"),
        "AmountWonOpportunities": RollUp(*_DEALS, "SUM", "Amount", (("IsWon", "=", True),)),
    },
    "Opportunity": {
        "HasOpportunityLineItem": RollUp(*_LINES, "COUNT"),
        "Amount": RollUp(*_LINES, "SUM", "TotalPrice"),
        "TotalOpportunityQuantity": RollUp(*_LINES, "SUM", "Quantity"),
    },
    "Order": {"TotalAmount": RollUp("OrderItem", "OrderId", "SUM", "TotalPrice")},
    "Quote": {
        "LineItemCount": RollUp(*_QUOTED, "COUNT"),
        "Subtotal": RollUp(*_QUOTED, "SUM", "Subtotal"),
        "TotalPrice": RollUp(*_QUOTED, "SUM", "TotalPrice"),
    },
    "ServiceContract": {
        "LineItemCount": RollUp(*_AGREED, "COUNT"),
        "Subtotal": RollUp(*_AGREED, "SUM", "Subtotal"),
        "TotalPrice": RollUp(*_AGREED, "SUM", "TotalPrice"),
    },
}
"""The roll-up behind each such field, by object and field."""

SET_BY_HAND = frozenset({("Opportunity", "Amount"), ("Opportunity", "TotalOpportunityQuantity")})
"""Totals that people set themselves as long as there is nothing to add up."""


def roll_up_of(obj: ObjectType, field: Field) -> RollUp | None:
    """What a field adds up, by definition or by nature; None if it is no roll-up."""
    return field.roll_up or TOTALS.get(obj.name, {}).get(field.name)
