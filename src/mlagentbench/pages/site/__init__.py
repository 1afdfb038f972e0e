"""The report: a folder of pages, tables and figures that opens from disk."""
