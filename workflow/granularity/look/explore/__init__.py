"""A folder of pages to look through one configuration's results (`granularity explore`): images, clusters, networks.

The pages need no server and ask for nothing outside; they read what lies there and train nothing.
"""
