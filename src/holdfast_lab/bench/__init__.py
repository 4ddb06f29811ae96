"""Benchmarks against Redis, Hazelcast, Ignite and etcd on the same machine: `python -m holdfast_lab.bench`."""
