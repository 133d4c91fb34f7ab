"""Sample records of the demo's company: customers, deals, cases, invoices and orders.

Record number n of an object is the same in every org, so an interrupted demo can resume. All names are invented.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

Record = dict[str, object]
Known = Mapping[str, Sequence[str]]
"""Ids of existing records, by object."""

_DAY_MS = 86_400_000


def _listed(words: str) -> list[str]:
    return words.split(" ")


_WORDS = _listed(
    "Harbour Granite Meadow Copper Lantern Willow Summit Delta Orchard Quarry Beacon Cedar Falcon Gable Heron "
    "Indigo Juniper Kestrel Linden Marble Northgate Otter Pinewood Quill Rowan Saffron Tamarind Umber Valley "
    "Westbrook Yarrow Zephyr Ashdown Birchfield Cobalt Driftwood Elmstead Foxglove Greystone Hazel"
)
_KINDS = (
    ("Logistics", "Transportation"),
    ("Foods", "Food & Beverage"),
    ("Textiles", "Apparel"),
    ("Energy", "Energy"),
    ("Studios", "Media"),
    ("Tools", "Machinery"),
    ("Paper", "Manufacturing"),
    ("Robotics", "Technology"),
    ("Travel", "Hospitality"),
    ("Health", "Healthcare"),
    ("Freight", "Shipping"),
    ("Ceramics", "Manufacturing"),
    ("Software", "Technology"),
    ("Insurance", "Insurance"),
    ("Builders", "Construction"),
    ("Dairy", "Agriculture"),
    ("Optics", "Electronics"),
    ("Water", "Utilities"),
    ("Learning", "Education"),
    ("Advisers", "Consulting"),
    ("Outfitters", "Retail"),
    ("Telecom", "Telecommunications"),
    ("Vineyards", "Agriculture"),
    ("Chemicals", "Chemicals"),
    ("Bank", "Banking"),
    ("Instruments", "Biotechnology"),
    ("Theatres", "Entertainment"),
    ("Recycling", "Environmental"),
    ("Cycles", "Recreation"),
    ("Works", "Engineering"),
)
_FIRST = _listed(
    "Amber Boris Chiara Dev Edna Farid Greta Hugo Ines Jonas Kavya Luca Mirela Nils Oona Pavel Quentin Rosa "
    "Sven Tara Umar Vera Wanda Xenia Yusuf Zora Anouk Bela Celia Dario Elif Fiona Goran Helga Imre Jana Kofi "
    "Lena Malik Nora"
)
_LAST = _listed(
    "Alvarez Berg Costa Dubois Eriksen Fischer Gupta Horvat Ito Jansen Kowalski Lindqvist Moreau Novak Okafor "
    "Petrov Quist Rossi Silva Tanaka Urban Varga Weber Xu Yilmaz Zeman Adeyemi Bianchi Castro Demir Egede "
    "Ferrari Grant Hassan"
)
_TITLES = (
    "Head of Purchasing",
    "Operations Manager",
    "Chief Financial Officer",
    "Plant Manager",
    "Buyer",
    "IT Lead",
    "Director of Logistics",
    "Office Manager",
    "Quality Engineer",
    "Owner",
)
CITIES = (
    ("Lisbon", "Portugal", "1100"),
    ("Oslo", "Norway", "0150"),
    ("Turin", "Italy", "10121"),
    ("Leeds", "United Kingdom", "LS1"),
    ("Ghent", "Belgium", "9000"),
    ("Porto", "Portugal", "4000"),
    ("Graz", "Austria", "8010"),
    ("Lyon", "France", "69001"),
    ("Bergen", "Norway", "5003"),
    ("Aarhus", "Denmark", "8000"),
    ("Utrecht", "Netherlands", "3511"),
    ("Bremen", "Germany", "28195"),
    ("Malmo", "Sweden", "21120"),
    ("Bilbao", "Spain", "48001"),
    ("Cork", "Ireland", "T12"),
    ("Brno", "Czechia", "60200"),
)
_STREETS = (
    "Quay Road",
    "Mill Lane",
    "Station Street",
    "Market Square",
    "Foundry Way",
    "Canal Row",
    "Hill Rise",
)
PRODUCTS = (
    "Pallet scanner",
    "Cold-chain sensor",
    "Dock planner",
    "Fleet tracker",
    "Label printer",
    "Yard gateway",
)
_DEALS = ("renewal", "roll-out", "pilot", "upgrade", "second site", "three-year plan", "expansion")
STAGES = (
    "Prospecting",
    "Qualification",
    "Needs Analysis",
    "Value Proposition",
    "Proposal/Price Quote",
    "Negotiation/Review",
    "Closed Won",
    "Closed Lost",
)
_SUBJECTS = (
    "{product} shows the wrong time",
    "{product} does not start after the update",
    "Invoice for {product} has the wrong address",
    "How do I connect a second {product}?",
    "{product} loses its network at night",
    "Replacement for a broken {product}",
    "Training for {product}",
)
_SOURCES = ("ServerHttp", "Phone Inquiry", "Partner Referral", "Purchased List", "Other")
CASE_STATUSES = ("New", "Working", "Escalated", "Closed")
INVOICE_STATUSES = ("Open", "Negotiating", "Pending", "Closed")


class Company:
    """Makes records. Deals and orders are dated around `today_ms`."""

    def __init__(self, today_ms: int, seed: str = "") -> None:
        self._today_ms = today_ms
        self._seed = seed

    def account(self, number: int, known: Known) -> Record:
        """Make a customer."""
        draw = self._draw("Account", number)
        # All pairs of word and kind are used before a name repeats, then with a city appended.
        kind, industry = _KINDS[(number + number // len(_WORDS)) % len(_KINDS)]
        name = f"{_WORDS[number % len(_WORDS)]} {kind}"
        city, country, code = draw.choice(CITIES)
        if number >= len(_WORDS) * len(_KINDS):
            name += f" {city}"
        employees = round(draw.lognormvariate(4.5, 1.2)) + 3
        return {
            "Name": name,
            "Industry": industry,
            "Type": draw.choice(("Prospect", "Customer - Direct", "Customer - Channel", "Other")),
            "Rating": draw.choice(("Hot", "Warm", "Cold")),
            "Phone": _phone(draw),
            "Website": f"https://{name.lower().replace(' ', '-')}.example",
            "NumberOfEmployees": employees,
            "AnnualRevenue": employees * draw.randrange(60, 240) * 1000,
            "BillingStreet": f"{draw.randrange(1, 200)} {draw.choice(_STREETS)}",
            "BillingCity": city,
            "BillingPostalCode": code,
            "BillingCountry": country,
        }

    def contact(self, number: int, known: Known) -> Record:
        """Make a contact of a customer."""
        draw = self._draw("Contact", number)
        first, last = draw.choice(_FIRST), draw.choice(_LAST)
        return {
            "FirstName": first,
            "LastName": last,
            "Title": draw.choice(_TITLES),
            "Email": f"{first}.{last}.{number}@mail.example".lower(),
            "Phone": _phone(draw),
            "AccountId": draw.choice(known["Account"]),
        }

    def lead(self, number: int, known: Known) -> Record:
        """Make a lead."""
        draw = self._draw("Lead", number)
        first, last = draw.choice(_FIRST), draw.choice(_LAST)
        kind, industry = draw.choice(_KINDS)
        return {
            "FirstName": first,
            "LastName": last,
            "Company": f"{last} & {draw.choice(_WORDS)} {kind}",
            "Industry": industry,
            "Title": draw.choice(_TITLES),
            "Email": f"{first}.{last}.{number}@lead.example".lower(),
            "LeadSource": draw.choice(_SOURCES),
            "City": draw.choice(CITIES)[0],
        }

    def opportunity(self, number: int, known: Known) -> Record:
        """Make a deal at some stage."""
        draw = self._draw("Opportunity", number)
        stage = draw.choice(STAGES)
        days = draw.randrange(-120, 0) if stage.startswith("Closed") else draw.randrange(5, 180)
        return {
            "Name": f"{draw.choice(PRODUCTS)} {draw.choice(_DEALS)}",
            "StageName": stage,
            "CloseDate": self.day(days),
            "Amount": draw.randrange(4, 400) * 500,
            "LeadSource": draw.choice(_SOURCES),
            "AccountId": draw.choice(known["Account"]),
        }

    def case(self, number: int, known: Known) -> Record:
        """Make a support case."""
        draw = self._draw("Case", number)
        return {
            "Subject": draw.choice(_SUBJECTS).format(product=draw.choice(PRODUCTS)),
            "Status": draw.choice(CASE_STATUSES),
            "Priority": draw.choice(("High", "Medium", "Medium", "Low")),
            "Origin": draw.choice(("Phone", "Email", "ServerHttp")),
            "AccountId": draw.choice(known["Account"]),
        }

    def invoice(self, number: int, known: Known) -> Record:
        """Make an invoice statement."""
        draw = self._draw("Invoice", number)
        pieces = draw.randrange(1, 40)
        return {
            "Description__c": f"{pieces} x {draw.choice(PRODUCTS)}",
            "Status__c": draw.choice(INVOICE_STATUSES),
            "Amount__c": pieces * draw.randrange(45, 900),
            "Account__c": draw.choice(known["Account"]),
        }

    def order(self, number: int, known: Known) -> Record:
        """Make a draft order."""
        draw = self._draw("Order", number)
        return {
            "AccountId": draw.choice(known["Account"]),
            "EffectiveDate": self.day(draw.randrange(-60, 20)),
            "Status": "Draft",
            "Description": f"{draw.randrange(1, 60)} x {draw.choice(PRODUCTS)}",
        }

    def day(self, days: int) -> str:
        """Return the date `days` from today."""
        return datetime.fromtimestamp((self._today_ms + days * _DAY_MS) / 1000, UTC).date().isoformat()

    def _draw(self, entity: str, number: int) -> random.Random:
        return random.Random(f"{self._seed}{entity}{number}")  # noqa: S311  # made-up companies need no secrecy


Maker = Callable[[int, Known], Record]


def _phone(draw: random.Random) -> str:
    return f"+{draw.randrange(30, 49)} {draw.randrange(100, 999)} 555 {draw.randrange(1000, 9999)}"
