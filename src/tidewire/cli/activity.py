"""A little believable activity for the demo: accounts, contacts, opportunities, invoices and events come and
go.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from tidewire.client.login import Credentials, login
from tidewire.client.rest import RestClient
from tidewire.errors import PlatformError, RequestRefused, SessionInvalid, StoreClosed

_DATA = "/services/data/v67.0/sobjects/"
_FIRST = ("Amber", "Boris", "Chiara", "Dev", "Edna", "Farid", "Greta", "Hugo", "Ines", "Jonas")
_LAST = ("Alvarez", "Berg", "Costa", "Dubois", "Eriksen", "Fischer", "Gupta", "Horvat", "Ito", "Jansen")
_WORDS = (
    "Harbour",
    "Granite",
    "Meadow",
    "Copper",
    "Lantern",
    "Willow",
    "Summit",
    "Delta",
    "Orchard",
    "Quarry",
)
_KINDS = (
    "Logistics",
    "Foods",
    "Textiles",
    "Energy",
    "Studios",
    "Tools",
    "Paper",
    "Robotics",
    "Travel",
    "Health",
)
_CITIES = ("Lisbon", "Oslo", "Turin", "Leeds", "Ghent", "Porto", "Graz", "Lyon", "Bergen", "Aarhus")
_STAGES = (
    "Prospecting",
    "Qualification",
    "Value Proposition",
    "Negotiation/Review",
    "Closed Won",
    "Closed Lost",
)
_MAX_KEPT = 500


class Activity:
    """Writes through the public REST API, about `per_second` changes a second, until told to stop."""

    def __init__(self, credentials: Credentials, per_second: float = 2.0, seed: int | None = None) -> None:
        self._credentials = credentials
        self._pause_s = 1 / per_second
        self._random = random.Random(seed)  # noqa: S311  # made-up companies need no secrecy
        self._client: RestClient | None = None
        self._accounts: list[str] = []
        self._opportunities: list[str] = []
        self._invoices: list[str] = []

    def run(self, stop: threading.Event) -> None:
        """Act until `stop` is set; a server that is away is waited for."""
        steps: list[Callable[[], None]] = (
            [self._new_account] * 2
            + [self._change_account] * 6
            + [self._new_contact] * 2
            + [self._new_opportunity, self._move_opportunity, self._move_opportunity]
            + [self._new_invoice, self._close_invoice, self._publish_order, self._drop_account]
        )
        while not stop.is_set():
            try:
                self._random.choice(steps)()
            except (SessionInvalid, StoreClosed):
                self._client = None
            except RequestRefused:
                # Somebody else removed the record in the meantime; there are others.
                self._accounts = self._accounts[1:]
            stop.wait(self._pause_s * self._random.uniform(0.3, 1.7))

    def _call(self, method: str, path: str, body: object = None) -> dict[str, str]:
        if self._client is None:
            self._client = RestClient(login(self._credentials))
        answer: dict[str, str] | None = self._client.call(method, _DATA + path, body)
        return answer or {}

    def _pick(self, values: tuple[str, ...]) -> str:
        return self._random.choice(values)

    def _keep(self, kept: list[str], record_id: str) -> None:
        kept.append(record_id)
        del kept[:-_MAX_KEPT]

    def _new_account(self) -> None:
        body = {
            "Name": f"{self._pick(_WORDS)} {self._pick(_KINDS)}",
            "BillingCity": self._pick(_CITIES),
            "NumberOfEmployees": self._random.randrange(5, 5000),
            "Phone": f"+{self._random.randrange(10**9, 10**10)}",
        }
        self._keep(self._accounts, self._call("POST", "Account", body)["id"])

    def _some_account(self) -> str:
        if not self._accounts:
            self._new_account()
        return self._random.choice(self._accounts)

    def _change_account(self) -> None:
        changes: tuple[dict[str, object], ...] = (
            {"Rating": self._pick(("Hot", "Warm", "Cold"))},
            {
                "BillingCity": self._pick(_CITIES),
                "BillingStreet": f"{self._random.randrange(1, 200)} Quay Road",
            },
            {"AnnualRevenue": self._random.randrange(1, 900) * 10_000},
            {"Phone": None},
            {"NumberOfEmployees": self._random.randrange(5, 5000)},
        )
        self._call("PATCH", "Account/" + self._some_account(), self._random.choice(changes))

    def _drop_account(self) -> None:
        if len(self._accounts) > 20:
            self._call("DELETE", "Account/" + self._accounts.pop(0))

    def _new_contact(self) -> None:
        first, last = self._pick(_FIRST), self._pick(_LAST)
        email = f"{first}.{last}@example.org".lower()
        body = {"FirstName": first, "LastName": last, "Email": email, "AccountId": self._some_account()}
        self._call("POST", "Contact", body)

    def _new_opportunity(self) -> None:
        body = {
            "Name": f"{self._pick(_WORDS)} renewal",
            "StageName": "Prospecting",
            "CloseDate": f"2027-{self._random.randrange(1, 13):02}-15",
            "Amount": self._random.randrange(1, 400) * 500,
            "AccountId": self._some_account(),
        }
        self._keep(self._opportunities, self._call("POST", "Opportunity", body)["id"])

    def _move_opportunity(self) -> None:
        if self._opportunities:
            self._call(
                "PATCH",
                "Opportunity/" + self._random.choice(self._opportunities),
                {"StageName": self._pick(_STAGES)},
            )

    def _new_invoice(self) -> None:
        body = {
            "Description__c": f"{self._pick(_KINDS)} delivery",
            "Amount__c": self._random.randrange(50, 9000),
        }
        self._keep(self._invoices, self._call("POST", "Invoice_Statement__c", body)["id"])

    def _close_invoice(self) -> None:
        if self._invoices:
            self._call("PATCH", "Invoice_Statement__c/" + self._invoices.pop(0), {"Status__c": "Closed"})

    def _publish_order(self) -> None:
        number = f"ORD-{self._random.randrange(10_000, 99_999)}"
        self._call("POST", "Order_Event__e", {"Order_Number__c": number, "City__c": self._pick(_CITIES)})


def run_activity(credentials: Credentials, stop: threading.Event) -> None:
    """Act until told to stop. Meant for a thread of its own."""
    while not stop.is_set():
        try:
            Activity(credentials).run(stop)
        except PlatformError:
            stop.wait(1.0)
