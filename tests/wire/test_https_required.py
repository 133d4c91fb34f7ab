"""An org that requires HTTPS, over both kinds of listener."""

from __future__ import annotations

import requests

from tidewire.testing import ServerProcess

HANDSHAKE = [{"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}]


def test_plain_http_is_refused_everywhere_but_health(fresh_server: ServerProcess) -> None:
    headers = {"Authorization": f"Bearer {fresh_server.login()}"}
    ca = str(fresh_server.ca_path)

    def apply(base: str, is_required: bool) -> requests.Response:
        document = {"settings": {"https_required": is_required}}
        url = f"{base}/services/tidewire/v1/apply"
        return requests.post(url, json=document, headers=headers, verify=ca, timeout=120)

    assert apply(fresh_server.http, True).json()["plan"] == ["set https_required = true"]
    refused = requests.get(f"{fresh_server.http}/services/data", timeout=120)
    assert (refused.status_code, refused.json()[0]["errorCode"]) == (403, "HTTPS_REQUIRED")
    bayeux = requests.post(f"{fresh_server.http}/cometd/61.0", json=HANDSHAKE, headers=headers, timeout=120)
    assert (bayeux.status_code, bayeux.json()[0]["errorCode"]) == (403, "HTTPS_REQUIRED")
    assert requests.get(f"{fresh_server.http}/healthz", timeout=120).status_code == 200
    secure = f"{fresh_server.https}/cometd/61.0"
    assert requests.post(secure, json=HANDSHAKE, headers=headers, verify=ca, timeout=120).json()[0][
        "successful"
    ]
    assert apply(fresh_server.https, False).json()["plan"] == ["set https_required = false"]
    assert requests.get(f"{fresh_server.http}/services/data", timeout=120).status_code == 200
