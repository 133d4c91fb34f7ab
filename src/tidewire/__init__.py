"""Tidewire: a self-hosted event streaming platform that speaks the Salesforce event protocols."""

__version__ = "0.1.0"
