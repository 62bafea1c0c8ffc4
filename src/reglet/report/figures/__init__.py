"""Plain data -> figures as Plotly takes them: {"data": [...], "layout": {...}}; one file for each section."""
