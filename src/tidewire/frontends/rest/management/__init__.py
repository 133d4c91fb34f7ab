"""The management API under `/services/tidewire/v1`, for the command line, the console and pipelines."""
