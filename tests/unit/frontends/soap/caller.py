"""SOAP calls to a core without sockets."""

from __future__ import annotations

from xml.etree.ElementTree import Element, fromstring

from tests.orgs import TestOrg
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.frontends.soap.serve import SoapApp
from tidewire.frontends.soap.wire import PARTNER, Dialect
from tidewire.transport.http import HttpRequest, HttpResponse

XSI = "{http://www.w3.org/2001/XMLSchema-instance}"


class Caller:
    """One signed-in user's calls of one of the two APIs."""

    def __init__(self, org: TestOrg, token: str, dialect: Dialect = PARTNER) -> None:
        self._app = SoapApp(org.core.gate, org.core.logins, org.core.cursors, org.clock)
        self._dialect = dialect
        self.token = token

    async def post(self, operation: str, arguments: str = "", header: str = "") -> HttpResponse:
        """The whole answer to one call."""
        body = (
            '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"'
            ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
            f' xmlns:sf="{self._dialect.object_namespace}" xmlns="{self._dialect.namespace}">'
            f"<e:Header><SessionHeader><sessionId>{self.token}</sessionId></SessionHeader>{header}</e:Header>"
            f"<e:Body><{operation}>{arguments}</{operation}></e:Body></e:Envelope>"
        )
        path = f"/services/Soap/{self._dialect.letter}/59.0"
        return await self._app.handle(HttpRequest("POST", path, {"host": "localhost"}, body.encode()))

    async def call(self, operation: str, arguments: str = "", header: str = "") -> list[Element]:
        """The results of a call that must succeed, with bare names."""
        answer = await self.post(operation, arguments, header)
        assert answer.status == 200, answer.body.decode()
        response = fromstring(answer.body).find("{http://schemas.xmlsoap.org/soap/envelope/}Body")
        assert response is not None
        for element in response.iter():
            element.tag = element.tag.rpartition("}")[2]
        return list(response[0])

    async def fault(self, operation: str, arguments: str = "", header: str = "") -> tuple[str, str]:
        """The code and message of a call that must fail."""
        answer = await self.post(operation, arguments, header)
        assert answer.status == 500, answer.body.decode()
        root = fromstring(answer.body)
        return root.findtext(".//faultcode") or "", root.findtext(".//faultstring") or ""


async def sign_in(org: TestOrg, dialect: Dialect = PARTNER, username: str = DEV_USERNAME) -> Caller:
    """A caller with a session of its own."""
    login = await org.core.logins.login(username, DEV_PASSWORD, "test")
    return Caller(org, login.token, dialect)


def children(element: Element) -> list[str]:
    """The names of an element's children, in order."""
    return [child.tag for child in element]


def code(result: Element) -> str:
    """The status code of one record's result, empty if it succeeded."""
    return result.findtext("errors/statusCode") or ""
