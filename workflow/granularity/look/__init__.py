"""Reading results and changing none: inspection, status, comparison of label spaces."""
