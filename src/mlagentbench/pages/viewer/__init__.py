"""One run as a page, and the server that follows runs that still go on."""
