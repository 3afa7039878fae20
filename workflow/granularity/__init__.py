"""How the granularity of pretraining labels decides what a network learns: the stages of the workflow."""

from granularity.base import kernels

kernels.pin()  # before anything here imports a library that chooses its loops
