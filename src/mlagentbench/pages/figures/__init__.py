"""Figures ready for a paper: SVG and PDF, text that stays text."""
