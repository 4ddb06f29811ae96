"""Small deliberate mistakes in the safety-critical modules, each of which a unit test must notice."""
