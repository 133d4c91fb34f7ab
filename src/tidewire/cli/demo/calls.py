"""The demo's client of the public API: REST, and SOAP for undelete and lead conversion."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from defusedxml.ElementTree import fromstring

from tidewire.client.login import SOAP_PATH, Credentials, Login, login
from tidewire.client.rest import RestClient
from tidewire.errors import RequestRefused, ServerUnreachable, SessionInvalid

DATA = "/services/data/v67.0/"
_ENVELOPE = (
    "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/' xmlns='urn:partner.soap.sforce.com'>"
    "<e:Header><SessionHeader><sessionId>{token}</sessionId></SessionHeader></e:Header>"
    "<e:Body>{body}</e:Body></e:Envelope>"
)
_TIMEOUT_S = 60.0


class DemoCalls:
    """A client that signs in when needed. Blocks; for one thread only. All calls raise PlatformError."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._login: Login | None = None
        self._client: RestClient | None = None

    @property
    def org_id(self) -> str:
        """The org's id."""
        return self._signed_in().org_id

    def rest(self, method: str, path: str, body: object = None) -> Any:
        """Make a REST call; return the decoded response."""
        signed_in = self._signed_in()
        if self._client is None:
            self._client = RestClient(signed_in)
        try:
            return self._client.call(method, path, body)
        except (SessionInvalid, ServerUnreachable):
            self._login = self._client = None
            raise

    def query(self, soql: str) -> list[dict[str, Any]]:
        """Return all records of a query."""
        self._signed_in()
        return (self._client or RestClient(self._signed_in())).query(soql)

    def ids(self, entity: str, limit: int, where: str = "") -> list[str]:
        """Return the ids of the newest records."""
        soql = f"SELECT Id FROM {entity}{where} ORDER BY Id DESC LIMIT {limit}"  # noqa: S608  # all from our own code
        return [str(row["Id"]) for row in self.query(soql)]

    def create(self, entity: str, fields: dict[str, object]) -> str:
        """Create a record; return its id."""
        return str(self.rest("POST", f"{DATA}sobjects/{entity}", fields)["id"])

    def update(self, entity: str, record_id: str, fields: dict[str, object]) -> None:
        """Update a record."""
        self.rest("PATCH", f"{DATA}sobjects/{entity}/{record_id}", fields)

    def delete(self, entity: str, record_id: str) -> None:
        """Delete a record."""
        self.rest("DELETE", f"{DATA}sobjects/{entity}/{record_id}")

    def create_all(self, entity: str, records: Sequence[dict[str, object]]) -> list[str]:
        """Create up to 200 records in one transaction."""
        return self._collection("POST", [{"attributes": {"type": entity}, **record} for record in records])

    def update_all(self, entity: str, record_ids: Sequence[str], fields: dict[str, object]) -> list[str]:
        """Set the same values on up to 200 records in one transaction, which yields one merged event."""
        attributes = {"type": entity}
        return self._collection(
            "PATCH", [{"attributes": attributes, "id": each, **fields} for each in record_ids]
        )

    def _collection(self, method: str, records: list[dict[str, object]]) -> list[str]:
        rows = self.rest(method, DATA + "composite/sobjects", {"allOrNone": True, "records": records})
        for row in rows:
            if not row["success"]:
                raise RequestRefused(str(row["errors"][0]["message"]), status=400)
        return [str(row["id"]) for row in rows]

    def undelete(self, record_id: str) -> None:
        """Restore a record from the recycle bin."""
        self._soap(f"<undelete><ids>{escape(record_id)}</ids></undelete>")

    def convert_lead(self, lead_id: str) -> None:
        """Convert a lead to an account, a contact and an opportunity."""
        self._soap(
            f"<convertLead><leadConverts><convertedStatus>Closed - Converted</convertedStatus>"
            f"<doNotCreateOpportunity>false</doNotCreateOpportunity><leadId>{escape(lead_id)}</leadId>"
            "<overwriteLeadSource>false</overwriteLeadSource>"
            "<sendNotificationEmail>false</sendNotificationEmail></leadConverts></convertLead>"
        )

    def _soap(self, body: str) -> None:
        signed_in = self._signed_in()
        envelope = _ENVELOPE.format(token=escape(signed_in.token), body=body)
        request = urllib.request.Request(  # noqa: S310  # the instance URL came from a login over http or https
            signed_in.instance_url + SOAP_PATH,
            envelope.encode(),
            {"Content-Type": "text/xml; charset=UTF-8", "SOAPAction": '""'},
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310
                answer = response.read()
        except urllib.error.HTTPError as error:
            with error:
                fault = error.read()
            if b"INVALID_SESSION_ID" in fault:
                self._login = self._client = None
                raise SessionInvalid("the session has expired") from error
            raise RequestRefused(fault[:200].decode("utf-8", "replace"), status=error.code) from error
        except OSError as error:
            raise ServerUnreachable.at(signed_in.instance_url, error) from error
        texts = {node.tag.rpartition("}")[2]: (node.text or "") for node in fromstring(answer).iter()}
        if texts.get("success") == "false":
            raise RequestRefused(texts.get("message", "rejected"), status=400)

    def _signed_in(self) -> Login:
        if self._login is None:
            self._login = login(self._credentials)
        return self._login
