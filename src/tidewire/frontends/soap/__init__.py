"""The SOAP API's sign-in: login, logout and getUserInfo of the partner and enterprise WSDLs.

Reads from: HttpRequest values that the edge hands to the core. Feeds: access.logins. Guarantee: element order
and names are those of the WSDL, since clients read answers by position. Never does: I/O of its own, expand an
entity, or let a stack trace out.
"""
