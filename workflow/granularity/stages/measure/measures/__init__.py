"""What stage `measure` can measure of a network; each measure is one file of this folder, or of the user's own.

A file of the user's own says `EXTENDS = "measure"`, and is named in the configuration under `extensions`.
"""

ORDER = ("probe",)
