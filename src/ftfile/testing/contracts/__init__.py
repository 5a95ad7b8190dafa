"""Contracts of extensions as tests. Call `pytest.register_assert_rewrite("ftfile.testing")` first to see values."""
