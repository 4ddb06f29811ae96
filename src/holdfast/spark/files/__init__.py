"""Files of stopped or copied members as DataFrames, and reports on them."""
