"""The composite resources: several requests, or a tree of records, in one call.

Each subrequest is handed to the data API as if it had come alone. Those that must succeed together run in one
transaction (`gate.shared_transaction`). Collections are the only composite resource that a subrequest may name, so no
request can multiply past its limits.
"""
