"""The look that all pages share: tokens, base page, visible text."""
