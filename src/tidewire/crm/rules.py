"""The rules of all standard objects, as one value that the record engine is opened with."""

from __future__ import annotations

from tidewire.crm.activities import plan_create, plan_relations, plan_update
from tidewire.crm.activity_accounts import ACTIVITIES, apply_last_activity
from tidewire.crm.checks import (
    check_activation,
    check_asset,
    check_hierarchy,
    check_lead,
    check_lead_editable,
    check_member,
    check_owner,
    check_price,
    check_user,
    ignored_opportunity_fields,
    plan_role_create,
    plan_role_update,
)
from tidewire.crm.copied_fields import COPIED, apply_copies
from tidewire.crm.derived_fields import DERIVED
from tidewire.crm.invitees import check_task_relation, plan_answer, plan_relation, with_relations
from tidewire.crm.person_fields import lost_contact_fields, with_contact_fields
from tidewire.crm.person_rules import (
    check_contact,
    check_contact_delete,
    complete_account,
    plan_account,
)
from tidewire.crm.person_rules import plan_update as plan_person_update
from tidewire.records.object_rules import ObjectRules, RecordRules, TypeRules
from tidewire.schema.model import RollUp
from tidewire.schema.standard.people import PERSON_OBJECTS

_MERGED = frozenset({"MasterRecordId"})


# Kept like the roll-ups of a definition, but they need no master-detail field, and a describe does not call them
# calculated.
_MEMBERS = ("CampaignMember", "CampaignId")
_DEALS = ("Opportunity", "CampaignId")
_LINES = ("OpportunityLineItem", "OpportunityId")
_QUOTED = ("QuoteLineItem", "QuoteId")
_AGREED = ("ContractLineItem", "ServiceContractId")

_SUMMARY_FIELDS: dict[str, dict[str, RollUp]] = {
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


_SET_BY_HAND = frozenset({("Opportunity", "Amount"), ("Opportunity", "TotalOpportunityQuantity")})
_ROLE = ObjectRules(plan_create=plan_role_create, plan_update=plan_role_update)

RULES = RecordRules(
    objects={
        "Account": ObjectRules(
            complete=complete_account,
            checks=(check_hierarchy,),
            plan_create=plan_account,
            plan_update=plan_person_update,
            reset_on_undelete=_MERGED,
        ),
        "AccountContactRole": _ROLE,
        "Asset": ObjectRules(checks=(check_hierarchy, check_asset), copied=COPIED["Asset"]),
        "Campaign": ObjectRules(checks=(check_hierarchy,)),
        "CampaignMember": ObjectRules(
            checks=(check_member, check_lead),
            copied=COPIED["CampaignMember"],
            derived=DERIVED["CampaignMember"],
        ),
        "Case": ObjectRules(
            checks=(check_hierarchy,),
            copied=COPIED["Case"],
            derived=DERIVED["Case"],
            reset_on_undelete=_MERGED,
        ),
        "Contact": ObjectRules(
            checks=(check_contact,),
            plan_update=plan_person_update,
            check_delete=check_contact_delete,
            reset_on_undelete=_MERGED,
        ),
        "Contract": ObjectRules(checks=(check_activation,), derived=DERIVED["Contract"]),
        "ContractLineItem": ObjectRules(copied=COPIED["ContractLineItem"]),
        "Event": ObjectRules(checks=(check_lead,), plan_create=plan_create, plan_update=plan_update),
        "EventRelation": ObjectRules(
            plan_create=plan_relation,
            plan_update=plan_answer,
            extend_delete=with_relations,
            plan_relations=plan_relations,
        ),
        "Lead": ObjectRules(check_editable=check_lead_editable, reset_on_undelete=_MERGED),
        "Opportunity": ObjectRules(
            ignored_fields=ignored_opportunity_fields,
            copied=COPIED["Opportunity"],
            derived=DERIVED["Opportunity"],
        ),
        "OpportunityContactRole": _ROLE,
        "OpportunityLineItem": ObjectRules(copied=COPIED["OpportunityLineItem"]),
        "Order": ObjectRules(checks=(check_activation,), derived=DERIVED["Order"]),
        "OrderItem": ObjectRules(copied=COPIED["OrderItem"]),
        "PricebookEntry": ObjectRules(checks=(check_price,), copied=COPIED["PricebookEntry"]),
        "PushTopic": ObjectRules(derived=DERIVED["PushTopic"]),
        "Quote": ObjectRules(copied=COPIED["Quote"], derived=DERIVED["Quote"]),
        "QuoteLineItem": ObjectRules(copied=COPIED["QuoteLineItem"]),
        "ServiceContract": ObjectRules(checks=(check_hierarchy,), derived=DERIVED["ServiceContract"]),
        "Task": ObjectRules(
            checks=(check_lead,), plan_create=plan_create, plan_update=plan_update, derived=DERIVED["Task"]
        ),
        "TaskRelation": ObjectRules(
            checks=(check_task_relation,),
            plan_create=plan_relation,
            extend_delete=with_relations,
            plan_relations=plan_relations,
        ),
        "User": ObjectRules(checks=(check_user,)),
    },
    checks=(check_owner,),
    summary_fields=_SUMMARY_FIELDS,
    set_by_hand=_SET_BY_HAND,
    flush=(apply_copies, apply_last_activity),
    flushed_entities=frozenset(ACTIVITIES),
    types=TypeRules(
        optional_objects=PERSON_OBJECTS,
        enabled=lambda settings: settings.person_accounts,
        with_dependents=with_contact_fields,
        lost_fields=lost_contact_fields,
    ),
)
"""The argument of `tidewire.records.types.Types`."""
