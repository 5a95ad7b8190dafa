from __future__ import annotations

import pytest

from ftfile.commit.layout import bucket_directory, bucket_key, bucket_stem


@pytest.mark.parametrize(("directory", "stem"), [("", ""), ("a=1/b", ""), ("", "stem"), ("a=1/b", "stem")])
def test_a_bucket_is_its_directory_and_its_stem(directory: str, stem: str) -> None:
    key = bucket_key(directory, stem)
    assert (bucket_directory(key), bucket_stem(key)) == (directory, stem)
