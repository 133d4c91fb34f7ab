"""The summary fields of standard objects.

They are kept like the roll-ups of a definition, by `tidewire.records.rollups`, but need no master-detail
field, and a describe does not call them calculated.
"""

from __future__ import annotations

from tidewire.schema.model import RollUp

_MEMBERS = ("CampaignMember", "CampaignId")
_DEALS = ("Opportunity", "CampaignId")
_LINES = ("OpportunityLineItem", "OpportunityId")
_QUOTED = ("QuoteLineItem", "QuoteId")
_AGREED = ("ContractLineItem", "ServiceContractId")

SUMMARY_FIELDS: dict[str, dict[str, RollUp]] = {
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
"""The roll-up of each summary field, by object and field."""

SET_BY_HAND = frozenset({("Opportunity", "Amount"), ("Opportunity", "TotalOpportunityQuantity")})
"""Summary fields that people set themselves as long as there is nothing to sum up."""
