"""Rules that open records to more people than the org-wide default does."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

DEFAULT_ACCESS_LEVELS = {"Read": ("Read",), "ReadWrite": ("Read", "Edit")}
"""The share levels that each org-wide default gives everybody; other defaults give none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingRule:
    """Opens records of `entity` to the group `shared_with_id`.

    It covers records that members of the group `owned_by_id` own, or that meet all of `criteria`, which are (field,
    operator, literal) as in roll-ups. Groups stand for roles and for everybody too: a Group of type Role has the
    role's id in RelatedId. `access` is Read or Edit.
    """

    entity: str
    name: str
    label: str
    access: str
    shared_with_id: str
    owned_by_id: str = ""
    criteria: tuple[tuple[str, str, str | int | float | bool | None], ...] = ()

    @property
    def key(self) -> str:
        """The unique name of the rule: `Account.Partners`."""
        return f"{self.entity}.{self.name}"


def render_sharing_rule(rule: SharingRule) -> str:
    """Render the rule as JSON text; `parse_sharing_rule` gives it back."""
    return json.dumps(asdict(rule))


def parse_sharing_rule(text: str) -> SharingRule:
    """Parse a rule from its JSON text."""
    document = json.loads(text)
    criteria = tuple((str(name), str(operator), literal) for name, operator, literal in document["criteria"])
    return SharingRule(**document | {"criteria": criteria})
