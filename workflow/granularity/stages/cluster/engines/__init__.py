"""Engines of k-means, found by name (`cluster.engine`): a file here, or the user's own with `EXTENDS = "engine"`.

All run Lloyd's algorithm from the same starts: a fixed number of iterations at most, on all points, several restarts,
of which the one with the lowest objective is kept. An iteration gives each point to its nearest centroid, puts every
centroid into the mean of its points, and refills clusters that won no point by splitting large ones. Clusters that are
empty at the end move once, to the points farthest from their own centroids, and are dropped if they are empty still.
An engine holds

- ``prepare(device, threads)``: take a GPU where one is asked for, and set threads. Returns the engine's name for the
  device, which is false for a CPU. Raises `GranularityError` where `cuda` is asked for and there is none.
- ``load(vectors, device)``: put float32 [N, D] where they are computed with. Returns what ``cluster`` takes.
- ``cluster(points, groups, options, device, begun, save)``: yield ``(number, labels)`` of each
  :class:`~granularity.stages.cluster.groups.Group`, in an order that depends on the groups alone; labels are
  canonical, int32 [n]. ``save(finished, arrays, notes)`` is called every few seconds: how many groups have been
  yielded, a function that gives the arrays of the work on the next ones (mostly no checkpoint is due), and notes on
  it. ``begun`` is what it was given last, with the arrays themselves. What is yielded does not depend on where the
  work was cut.
"""
