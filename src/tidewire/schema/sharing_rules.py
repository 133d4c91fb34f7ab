"""Rules that open records to more people than the org-wide default does."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

DEFAULT_ACCESS_LEVELS = {"Read": ("Read",), "ReadWrite": ("Read", "Edit")}
"""The share levels that everybody has by each org-wide default; by the others nobody has any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingRule:
    """Records of `entity` that somebody in the group `owned_by_id` owns, or that meet all of `criteria`, are
    open to the group `shared_with_id`.

    Groups stand for roles and for everybody too: a Group of type Role has the role's id in RelatedId. `criteria`
    are (field, operator, literal), as in roll-ups. `access` is Read or Edit.
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
        """What tells the rule from all others: `Account.Partners`."""
        return f"{self.entity}.{self.name}"


def render_sharing_rule(rule: SharingRule) -> str:
    """The rule as JSON text; `parse_sharing_rule` gives it back."""
    return json.dumps(asdict(rule))


def parse_sharing_rule(text: str) -> SharingRule:
    """A rule from its JSON text."""
    document = json.loads(text)
    criteria = tuple((str(name), str(operator), literal) for name, operator, literal in document["criteria"])
    return SharingRule(**document | {"criteria": criteria})
