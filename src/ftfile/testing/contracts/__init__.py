"""Promises of extensions as tests; `pytest.register_assert_rewrite("ftfile.testing")` before them shows values."""
