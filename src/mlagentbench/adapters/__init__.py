"""Bridges to other ecosystems: each optional, none imported by the core."""
