"""The base of all pages: template, style, rendering, and making invisible characters visible."""
