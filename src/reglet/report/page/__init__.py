"""Gathered runs and their figures -> HTML, with styles, script and Plotly inside."""
