"""Figures ready for a paper: SVG and PDF with real text."""
