"""The page of one run, and the server that follows runs in progress."""
