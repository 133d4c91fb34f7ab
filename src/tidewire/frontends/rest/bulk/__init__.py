"""Bulk API 2.0 under `/services/data/vN.0/jobs` (`jobs.py`) and 1.0 under `/services/async` (`classic.py`)."""
