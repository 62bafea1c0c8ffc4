"""docs/regularizers.md has every regularizer of one place, by the names that the command line knows."""

from benchmarks.regularizers import FILE, REGULARIZERS

from reglet.engine.attachments import ONE_PLACE


def test_every_regularizer_has_a_row_and_a_push() -> None:
    assert {one.word for one in REGULARIZERS} == set(ONE_PLACE)
    text = FILE.read_text()
    for one in REGULARIZERS:
        assert text.count(f"| `{one.name}` |") == 2, one.name
        assert f"`{one.word}`" in text
