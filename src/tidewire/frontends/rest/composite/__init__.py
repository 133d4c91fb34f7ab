"""The composite resources: several requests, or a tree of records, in one call.

Reads JSON bodies that name other data resources, and feeds each of those requests to the data API as if it had come
alone. What must happen together happens in one transaction, through `access.joined`. A subrequest never leads
to another composite resource than collections, so no request can grow into more than its limits allow.
"""
