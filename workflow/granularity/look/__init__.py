"""Read results without changing any: inspection, status, comparison of label spaces."""
