"""The WSDL of the partner and enterprise APIs, written out of what this server answers and what a caller may see.

Reads from: the tables of `shapes`, the table of errors and the org's catalog. Feeds: whoever makes a client.
Guarantee: an answer of ours has the elements of its type here, in this order. Never does: show a field or an object
to somebody who may not read it.
"""
