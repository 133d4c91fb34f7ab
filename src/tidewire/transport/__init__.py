"""Sockets and the HTTP that travels on them. Knows nothing of records, events or users."""
