"""The REST APIs: records, queries, descriptions, bulk jobs, management and OAuth, as JSON over HTTP.

Reads from: HttpRequest values that the edge hands to the core. Feeds: gate (records, schemas, publishing) and
access.logins (sessions). Guarantee: every request gets one protocol-correct answer; a write is answered after it is
durable. Never does: I/O or permission checks itself, or reveal internal errors to a caller.
"""
