"""What a kept result depends on."""

from costmodel.specs import digest_of_files


def test_a_digest_is_of_names_and_contents_below_a_folder(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.py").write_text("1")
    (tmp_path / "b.csv").write_text("2")
    first, both = digest_of_files(tmp_path), digest_of_files(tmp_path, ("*.py", "*.csv"))
    assert first != both
    (tmp_path / "b.csv").write_text("3")
    assert digest_of_files(tmp_path) == first
    assert digest_of_files(tmp_path, ("*.py", "*.csv")) != both
    (tmp_path / "inner" / "a.py").rename(tmp_path / "a.py")
    assert digest_of_files(tmp_path) != first
