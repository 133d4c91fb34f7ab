"""The demo's activity: what people and machines of a small company do all day, through the public API.

New customers, calls and deals, leads that become customers, price rounds over many accounts at once, mistakes that are
deleted and taken back, shipments and announcements: every kind of event that a subscriber can meet.
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
_FEW = 20  # below this nothing is deleted or converted
_AWAY_S = 1.0
_WATCHED = ("Account", "Opportunity", "Case", "Invoice_Statement__c")
_NEWS = (
    "The warehouse in {city} opens an hour later today",
    "Stock count in {city} is done",
    "New price list is out; {city} goes first",
    "Visitors from {city} arrive at noon",
)


class Activity:
    """Writes about `per_second` changes a second until told to stop. Each step is one thing that somebody does."""

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
            self.settle_invoice: 2,
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
        """Look up what is there, to go on with it. Raises PlatformError."""
        self._known = {entity: self._calls.ids(entity, _MAX_KEPT) for entity in _WATCHED}
        self._leads = self._calls.ids("Lead", _MAX_KEPT, " WHERE IsConverted = FALSE")
        self._channel_id = ensure_channel(self._calls)

    def run(self, stop: threading.Event) -> None:
        """Act until `stop` is set. Raises PlatformError if the server is away."""
        self.learn()
        steps, weights = list(self.steps), list(self.steps.values())
        while not stop.wait(self._pause_s * self._random.uniform(0.3, 1.7)):
            try:
                self._random.choices(steps, weights)[0]()
            except RequestRefused:
                # Somebody else has removed or changed the record in the meantime.
                self.learn()

    def change_account(self) -> None:
        """Somebody notes what a call was about."""
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
        """A deal goes on."""
        self._calls.update(
            "Opportunity", self._some("Opportunity"), {"StageName": self._random.choice(STAGES)}
        )

    def work_on_case(self) -> None:
        """Support answers, or is done."""
        status = self._random.choice(("Working", "Working", "Escalated", "Closed"))
        self._calls.update("Case", self._some("Case"), {"Status": status})

    def open_account(self) -> None:
        """A new customer."""
        self._make("Account")

    def meet_contact(self) -> None:
        """A new name at a customer."""
        self._make("Contact")

    def open_opportunity(self) -> None:
        """A new deal."""
        self._make("Opportunity")

    def open_case(self) -> None:
        """A customer has trouble."""
        self._make("Case")

    def send_invoice(self) -> None:
        """A new invoice statement."""
        self._make("Invoice_Statement__c")

    def settle_invoice(self) -> None:
        """An invoice statement goes on."""
        status = self._random.choice(INVOICE_STATUSES)
        self._calls.update("Invoice_Statement__c", self._some("Invoice_Statement__c"), {"Status__c": status})

    def take_order(self) -> None:
        """A new order."""
        self._make("Order")

    def take_lead(self) -> None:
        """Somebody asks for an offer."""
        self._leads.append(self._make("Lead"))

    def convert_lead(self) -> None:
        """A lead becomes a customer, with a contact and a deal, in one transaction."""
        if len(self._leads) > _FEW:
            self._calls.convert_lead(self._leads.pop(self._random.randrange(len(self._leads))))

    def change_many_accounts(self) -> None:
        """A sales round: the same change on many accounts in one transaction."""
        accounts = self._known["Account"]
        chosen = self._random.sample(accounts, min(len(accounts), self._random.randrange(5, 40)))
        if chosen:
            site = self._random.choice(CITIES)[0]
            self._calls.update_all("Account", chosen, {"Site": f"Round of {site}"})

    def delete_invoice(self) -> None:
        """An invoice statement was a mistake."""
        invoices = self._known["Invoice_Statement__c"]
        if len(invoices) > _FEW:
            gone = invoices.pop(self._random.randrange(len(invoices)))
            self._calls.delete("Invoice_Statement__c", gone)
            self._deleted.append(gone)

    def undelete_invoice(self) -> None:
        """It was none."""
        if self._deleted:
            back = self._deleted.pop()
            self._calls.undelete(back)
            self._keep("Invoice_Statement__c", back)

    def ship(self) -> None:
        """Machines publish platform events."""
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
        """Somebody tells everybody."""
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
    """Act until told to stop; a server that is away is waited for. Meant for a thread of its own."""
    while not stop.is_set():
        try:
            Activity(DemoCalls(credentials), Company(SystemClock().now_ms())).run(stop)
        except PlatformError:
            stop.wait(_AWAY_S)
