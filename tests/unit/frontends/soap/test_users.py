"""The order of login's result, which clients index by number."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

from tidewire.access.logins import LoginResult, UserInfo
from tidewire.access.principal import Principal
from tidewire.frontends.soap.users import render_login, render_user_info
from tidewire.frontends.soap.wire import PARTNER, Endpoint, render_answer
from tidewire.ids import make_id

ORG = make_id("00D", 1)
USER = make_id("005", 1)
INFO = UserInfo(
    user_id=USER,
    username="ada@example.com",
    full_name="Ada & Co <b>",
    first_name="Ada",
    last_name="Lovelace",
    email="ada@example.com",
    profile_id="00eTW0000000001AAA",
    role_id="",
    language="en_US",
    locale="en_GB",
    time_zone="GMT",
    user_type="Standard",
    is_active=True,
    org_id=ORG,
    org_name="Engines",
)
LOGIN = LoginResult("00DTW0000000001!x.y_z", Principal(ORG, USER, "ada@example.com", "s1"), 7200)
NS = "{urn:partner.soap.sforce.com}"
RESULT = ["metadataServerUrl", "passwordExpired", "sandbox", "serverUrl", "sessionId", "userId", "userInfo"]
USER_INFO = [
    "accessibilityMode",
    "chatterExternal",
    "currencySymbol",
    "orgAttachmentFileSizeLimit",
    "orgDefaultCurrencyIsoCode",
    "orgDefaultCurrencyLocale",
    "orgDisallowHtmlAttachments",
    "orgHasPersonAccounts",
    "organizationId",
    "organizationMultiCurrency",
    "organizationName",
    "profileId",
    "roleId",
    "sessionSecondsValid",
    "userDefaultCurrencyIsoCode",
    "userEmail",
    "userFullName",
    "userId",
    "userLanguage",
    "userLocale",
    "userName",
    "userTimeZone",
    "userType",
    "userUiSkin",
]


def answer() -> bytes:
    result = render_login(LOGIN, INFO, Endpoint(PARTNER, 59), "http://localhost:8080")
    return render_answer(PARTNER, "login", f"<result>{result}</result>")


def test_login_result_is_in_the_order_clients_count_by() -> None:
    result = fromstring(answer())[0][0][0]
    assert [child.tag for child in result] == [NS + name for name in RESULT]
    assert [child.tag for child in result[6]] == [NS + name for name in USER_INFO]
    assert result[4].text == LOGIN.token
    assert result[3].text == f"http://localhost:8080/services/Soap/u/59.0/{ORG[:15]}"
    assert result[6][8].text == ORG
    assert result[6][16].text == "Ada & Co <b>"


def test_scalar_tags_are_bare_for_clients_that_search_the_text() -> None:
    text = answer().decode()
    for tag, value in (("sessionId", LOGIN.token), ("userId", USER), ("organizationId", ORG)):
        assert f"<{tag}>{value}</{tag}>" in text
    assert "<passwordExpired>false</passwordExpired>" in text


def test_empty_role_is_nil() -> None:
    assert '<roleId xsi:nil="true"/>' in render_user_info(INFO, 7200)
