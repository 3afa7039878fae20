"""The report: tables, figures and one self-contained HTML page."""
