"""OAuth 2.0 and OpenID Connect over HTTP: token endpoint, login and consent pages, and identity.

Errors have OAuth's form, `{error, error_description}` with status 400, not the data API's array. A failed login does
not say what was wrong.
"""
