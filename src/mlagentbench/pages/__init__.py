"""The report site, the trace viewer, and the figures and page layout they share."""
