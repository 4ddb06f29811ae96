"""Small deliberate mistakes in the safety-critical modules. A unit test must notice each one."""
