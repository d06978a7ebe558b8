"""Measurements that people can repeat. Ratios in one run; never a timed test."""
