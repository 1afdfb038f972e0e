"""The report: a folder with HTML pages, tables and figures that opens from disk."""
