"""Login for programs: OAuth's password grant if a client id is given, otherwise the SOAP login call."""

from __future__ import annotations

import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from xml.etree.ElementTree import ParseError
from xml.sax.saxutils import escape

from defusedxml.ElementTree import fromstring

from tidewire.errors import ConfigInvalid, LoginFailed, ServerUnreachable

SOAP_PATH = "/services/Soap/u/67.0"
_MAX_ERROR_BYTES = 65_536
_ABOUT_THE_USER = ("LOGIN", "PASSWORD", "DISABLED")
_REASON = re.compile(r"[A-Za-z_]{1,60}")
_SOAP_LOGIN = (
    '<?xml version="1.0" encoding="utf-8"?>'
    '<env:Envelope xmlns:env="http://schemas.xmlsoap.org/soap/envelope/"><env:Body>'
    '<n1:login xmlns:n1="urn:partner.soap.sforce.com">'
    "<n1:username>{username}</n1:username><n1:password>{password}</n1:password>"
    "</n1:login></env:Body></env:Envelope>"
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user's credentials and the login server. Without a `client_id` the SOAP call is used."""

    login_url: str
    username: str
    password: str = field(repr=False)
    client_id: str = ""
    client_secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Login:
    """A session: its token, the server to call, the org and, if the server returned it, the user."""

    token: str = field(repr=False)
    instance_url: str
    org_id: str
    user_id: str = ""


def login(credentials: Credentials, tls_ca: bytes | None = None, timeout_s: float = 30.0) -> Login:
    """Log in. Blocks. Raises LoginFailed with the server's `reason`, or ServerUnreachable."""
    if credentials.client_id:
        return _login_oauth(credentials, tls_ca, timeout_s)
    return _login_soap(credentials, tls_ca, timeout_s)


def _login_oauth(credentials: Credentials, tls_ca: bytes | None, timeout_s: float) -> Login:
    form = {
        "grant_type": "password",
        "client_id": credentials.client_id,
        "client_secret": credentials.client_secret,
        "username": credentials.username,
        "password": credentials.password,
    }
    answer = _post(
        credentials.login_url.rstrip("/") + "/services/oauth2/token",
        urllib.parse.urlencode(form).encode(),
        {"Content-Type": "application/x-www-form-urlencoded"},
        tls_ca,
        timeout_s,
    )
    try:
        body = json.loads(answer)
        # The identity URL ends in /id/<org id>/<user id>; the password grant names the two nowhere else.
        org_id, user_id = urllib.parse.urlparse(body["id"]).path.split("/")[-2:]
        return Login(body["access_token"], body["instance_url"], org_id, user_id)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise LoginFailed("the server's answer to the token request is not an OAuth token") from error


def _login_soap(credentials: Credentials, tls_ca: bytes | None, timeout_s: float) -> Login:
    envelope = _SOAP_LOGIN.format(
        username=escape(credentials.username), password=escape(credentials.password)
    )
    answer = _post(
        credentials.login_url.rstrip("/") + SOAP_PATH,
        envelope.encode(),
        {"Content-Type": "text/xml; charset=UTF-8", "SOAPAction": '""'},
        tls_ca,
        timeout_s,
    )
    try:
        found = {node.tag.rpartition("}")[2]: (node.text or "") for node in fromstring(answer).iter()}
        server = urllib.parse.urlparse(found["serverUrl"])
        instance_url = f"{server.scheme}://{server.netloc}"
        return Login(found["sessionId"], instance_url, found["organizationId"], found.get("userId", ""))
    except (ParseError, ValueError, KeyError) as error:
        raise LoginFailed("the server's answer to the login call is not a login result") from error


def _post(url: str, body: bytes, headers: dict[str, str], tls_ca: bytes | None, timeout_s: float) -> bytes:
    if urllib.parse.urlparse(url).scheme not in ("http", "https"):
        raise ConfigInvalid(f"the login URL must start with http:// or https://: {url}", setting="login_url")
    context = ssl.create_default_context(cadata=tls_ca.decode("ascii") if tls_ca else None)
    request = urllib.request.Request(url, body, headers)  # noqa: S310 - the scheme is checked above
    try:
        with urllib.request.urlopen(request, timeout=timeout_s, context=context) as response:  # noqa: S310 - as above
            answer: bytes = response.read()
            return answer
    except urllib.error.HTTPError as error:
        with error:
            reason = _reason(error.read(_MAX_ERROR_BYTES))
        # Every SOAP fault has status 500; its code tells a wrong password from a fault of the server.
        if error.code >= 500 and not any(word in reason for word in _ABOUT_THE_USER):
            raise ServerUnreachable(f"{url} answered {error.code}; retry later", address=url) from error
        text = "the server rejected the login" + (f" ({reason})" if reason else "")
        raise LoginFailed(text, reason=reason) from error
    except OSError as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        raise ServerUnreachable.at(url, why) from error


def _reason(answer: bytes) -> str:
    """Return the error code of a failed login: OAuth's `error` or a SOAP fault's code; empty if it has neither."""
    try:
        body = json.loads(answer)
        code = body.get("error", "") if isinstance(body, dict) else ""
    except ValueError:
        code = answer.partition(b"<faultcode>")[2].partition(b"</faultcode>")[0].decode("ascii", "replace")
        code = code.rpartition(":")[2]
    return code if isinstance(code, str) and _REASON.fullmatch(code) else ""
