"""What a signed-in user may ask of an org: records, queries, events to publish, definitions, metadata and describe.

Every front end goes through here, so a right is checked once, whatever protocol the request came by. Reads from
`access` (who the user is and what they may do) and calls `records`, `capture` and `eventlog`. It knows no protocol.
"""
