"""Clusters: what a run asks SLURM for, and whether the cluster has it. Nothing imports torch."""
