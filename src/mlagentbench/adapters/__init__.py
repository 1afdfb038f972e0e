"""Integrations with other frameworks. Each is optional; the core imports none of them."""
