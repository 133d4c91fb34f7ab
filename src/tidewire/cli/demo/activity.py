"""Simulated activity of the demo's company, through the public API.

It produces every kind of event that a subscriber can receive: creates, updates, deletes and undeletes, converted
leads, bulk updates in one transaction, platform events and generic messages.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from tidewire.cli.demo.calls import DATA, DemoCalls
from tidewire.cli.demo.company import CITIES, INVOICE_STATUSES, STAGES, Company
from tidewire.cli.demo.org import ensure_channel, makers_of
from tidewire.client.login import Credentials
from tidewire.clock import SystemClock
from tidewire.errors import PlatformError, RequestRefused

_MAX_KEPT = 500
_FEW = 20  # nothing is deleted or converted below this
_RETRY_S = 1.0
_WATCHED = ("Account", "Opportunity", "Case", "Invoice_Statement__c")
_NEWS = (
    "The warehouse in {city} opens an hour later today",
    "Stock count in {city} is done",
    "New price list is out; {city} goes first",
    "Visitors from {city} arrive at noon",
)


class Activity:
    """Makes about `per_second` random changes per second. Each step is one user action."""

    def __init__(
        self, calls: DemoCalls, company: Company, per_second: float = 3.0, seed: int | None = None
    ) -> None:
        self._calls = calls
        self._pause_s = 1 / per_second
        self._random = random.Random(seed)  # noqa: S311  # made-up companies need no secrecy
        self._makers = makers_of(company)
        self._known: dict[str, list[str]] = {}
        self._leads: list[str] = []
        self._deleted: list[str] = []
        self._channel_id = ""
        self.steps: dict[Callable[[], None], int] = {
            self.change_account: 6,
            self.move_opportunity: 4,
            self.work_on_case: 4,
            self.open_account: 1,
            self.meet_contact: 2,
            self.open_opportunity: 2,
            self.open_case: 2,
            self.send_invoice: 2,
            self.advance_invoice: 2,
            self.take_order: 1,
            self.take_lead: 1,
            self.convert_lead: 1,
            self.change_many_accounts: 1,
            self.delete_invoice: 1,
            self.undelete_invoice: 1,
            self.ship: 3,
            self.announce: 1,
        }

    def learn(self) -> None:
        """Load the ids of existing records. Raises PlatformError."""
        self._known = {entity: self._calls.ids(entity, _MAX_KEPT) for entity in _WATCHED}
        self._leads = self._calls.ids("Lead", _MAX_KEPT, " WHERE IsConverted = FALSE")
        self._channel_id = ensure_channel(self._calls)

    def run(self, stop: threading.Event) -> None:
        """Run random steps until `stop` is set. Raises PlatformError if the server is unreachable."""
        self.learn()
        steps, weights = list(self.steps), list(self.steps.values())
        while not stop.wait(self._pause_s * self._random.uniform(0.3, 1.7)):
            try:
                self._random.choices(steps, weights)[0]()
            except RequestRefused:
                # Another client has deleted or changed the record meanwhile.
                self.learn()

    def change_account(self) -> None:
        """Update some fields of an account."""
        city, country, code = self._random.choice(CITIES)
        changes: tuple[dict[str, object], ...] = (
            {"Rating": self._random.choice(("Hot", "Warm", "Cold"))},
            {"BillingCity": city, "BillingCountry": country, "BillingPostalCode": code},
            {"AnnualRevenue": self._random.randrange(1, 900) * 10_000},
            {"Phone": None},
            {"NumberOfEmployees": self._random.randrange(5, 5000)},
            {
                "Description": f"Called; wants to hear from us again on {self._random.randrange(1, 29)} next month."
            },
        )
        self._calls.update("Account", self._some("Account"), self._random.choice(changes))

    def move_opportunity(self) -> None:
        """Move a deal to another stage."""
        self._calls.update(
            "Opportunity", self._some("Opportunity"), {"StageName": self._random.choice(STAGES)}
        )

    def work_on_case(self) -> None:
        """Change the status of a case."""
        status = self._random.choice(("Working", "Working", "Escalated", "Closed"))
        self._calls.update("Case", self._some("Case"), {"Status": status})

    def open_account(self) -> None:
        """Create an account."""
        self._make("Account")

    def meet_contact(self) -> None:
        """Create a contact."""
        self._make("Contact")

    def open_opportunity(self) -> None:
        """Create an opportunity."""
        self._make("Opportunity")

    def open_case(self) -> None:
        """Create a case."""
        self._make("Case")

    def send_invoice(self) -> None:
        """Create an invoice statement."""
        self._make("Invoice_Statement__c")

    def advance_invoice(self) -> None:
        """Change the status of an invoice statement."""
        status = self._random.choice(INVOICE_STATUSES)
        self._calls.update("Invoice_Statement__c", self._some("Invoice_Statement__c"), {"Status__c": status})

    def take_order(self) -> None:
        """Create an order."""
        self._make("Order")

    def take_lead(self) -> None:
        """Create a lead."""
        self._leads.append(self._make("Lead"))

    def convert_lead(self) -> None:
        """Convert a lead to an account, contact and opportunity in one transaction."""
        if len(self._leads) > _FEW:
            self._calls.convert_lead(self._leads.pop(self._random.randrange(len(self._leads))))

    def change_many_accounts(self) -> None:
        """Make the same change to many accounts in one transaction."""
        accounts = self._known["Account"]
        chosen = self._random.sample(accounts, min(len(accounts), self._random.randrange(5, 40)))
        if chosen:
            site = self._random.choice(CITIES)[0]
            self._calls.update_all("Account", chosen, {"Site": f"Round of {site}"})

    def delete_invoice(self) -> None:
        """Delete an invoice statement."""
        invoices = self._known["Invoice_Statement__c"]
        if len(invoices) > _FEW:
            gone = invoices.pop(self._random.randrange(len(invoices)))
            self._calls.delete("Invoice_Statement__c", gone)
            self._deleted.append(gone)

    def undelete_invoice(self) -> None:
        """Undelete an invoice statement."""
        if self._deleted:
            back = self._deleted.pop()
            self._calls.undelete(back)
            self._keep("Invoice_Statement__c", back)

    def ship(self) -> None:
        """Publish a platform event."""
        number, city = f"ORD-{self._random.randrange(10_000, 99_999)}", self._random.choice(CITIES)[0]
        if self._random.random() < 0.5:
            self._calls.create("Order_Event__e", {"Order_Number__c": number, "City__c": city})
            return
        shipment = {
            "Order_Number__c": number,
            "City__c": city,
            "Pallets__c": self._random.randrange(1, 30),
            "Is_Late__c": self._random.random() < 0.1,
        }
        self._calls.create("Shipment_Event__e", shipment)

    def announce(self) -> None:
        """Send a message to the generic channel."""
        text = self._random.choice(_NEWS).format(city=self._random.choice(CITIES)[0])
        body = {"pushEvents": [{"payload": text, "userIds": []}]}
        self._calls.rest("POST", f"{DATA}sobjects/StreamingChannel/{self._channel_id}/push", body)

    def _make(self, entity: str) -> str:
        if entity != "Account" and not self._known["Account"]:
            self._make("Account")
        fields = self._makers[entity](self._random.getrandbits(40), self._known)
        record_id = self._calls.create(entity, fields)
        if entity in self._known:
            self._keep(entity, record_id)
        return record_id

    def _some(self, entity: str) -> str:
        if not self._known[entity]:
            self._make(entity)
        return self._random.choice(self._known[entity])

    def _keep(self, entity: str, record_id: str) -> None:
        kept = self._known[entity]
        kept.append(record_id)
        del kept[:-_MAX_KEPT]


def run_activity(credentials: Credentials, stop: threading.Event) -> None:
    """Run the activity in a thread until `stop` is set, waiting for the server while it is unreachable."""
    while not stop.is_set():
        try:
            Activity(DemoCalls(credentials), Company(SystemClock().now_ms())).run(stop)
        except PlatformError:
            stop.wait(_RETRY_S)
