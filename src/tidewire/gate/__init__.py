"""What a signed-in user may ask of an org: records, queries, events to publish, definitions, metadata, describe.

Reads from: `access` (who the user is and what they may do) and the catalog.
Feeds: `records`, `capture` and the event log, on behalf of the caller.
Guarantee: every right is checked here once, whatever protocol the request came by.
Never does: know a protocol, or return a record or field that its caller may not see.
"""
