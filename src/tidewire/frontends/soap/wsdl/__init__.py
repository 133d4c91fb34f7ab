"""The WSDL of the partner and enterprise APIs.

Reads from: the tables of `shapes`, the table of errors and the org's catalog. Feeds: client generators. Guarantee: our
answers have the elements of their types here, in this order. Never does: show a field or an object to a caller who may
not read it.
"""
