"""Workloads: model + task + data + batch + optimizer, built from a run's spec.

Importing this package imports neither torch nor a model library; `registry.build` imports what one
workload needs and no more.
"""
