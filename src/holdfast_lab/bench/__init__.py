"""Benchmarks against Redis, Hazelcast and etcd on the same machine: `python -m holdfast_lab.bench`."""
