"""The Bulk API: jobs under `/services/data/vN.0/jobs`, and the older one's under `/services/async`."""
