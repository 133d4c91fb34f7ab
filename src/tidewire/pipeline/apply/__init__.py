"""The apply step: whole transactions from bronze, decoded and appended to the history of each object."""
