"""The REST data API and OAuth: records, queries, descriptions and sign-in as JSON over HTTP.

Reads from: HttpRequest values that the edge hands to the core. Feeds: access.gate (records, schemas,
publishing) and access.logins (sessions). Guarantee: every request gets one protocol-correct answer; a write
is answered after it is durable. Never does: I/O of its own, permission checks of its own, or tell a caller
what went wrong inside.
"""
