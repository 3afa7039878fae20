"""File formats that several sources read."""
