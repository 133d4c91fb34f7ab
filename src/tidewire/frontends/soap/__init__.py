"""The SOAP API: the calls of the partner and enterprise WSDLs.

Reads from: HttpRequest values that the edge hands to the core. Feeds: access.logins and gate. Guarantee: element order
and names are those of the WSDL, since clients read answers by position; what a caller may not see does not exist for
it. Never does: I/O itself, expand an XML entity, or reveal a stack trace.
"""
