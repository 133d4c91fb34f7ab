"""The Spark driver process: two streaming queries, their supervision, and one worker thread for upkeep."""
