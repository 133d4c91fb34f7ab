"""OAuth 2.0 and OpenID Connect on the wire: token endpoint, login and consent pages, and who a user is.

Errors here have OAuth's own form, `{error, error_description}` with status 400, not the data API's array. A refused
login never says what was wrong with it.
"""
