"""How columns of words, dates and gaps are recognized, and what is made of them, then and later."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from surelabel.data._values import Place
from surelabel.data.columns import BooleanColumn, CategoryColumn, DateColumn, NumberColumn, Words
from surelabel.data.recognition import overruled, recognized, resembled
from surelabel.data.run_data import TableData
from surelabel.data.tables import write_table
from surelabel.data.texts import MOST_DIRECTIONS, from_bytes, learn_texts, to_bytes
from surelabel.errors import DataError

SENTENCES = [f"the {animal} number {row} sat on a mat" for row in range(20) for animal in ("cat", "dog")]


def words(*cells: str | None) -> Words:
    return Words.of(Place(Path("t.csv"), "c"), list(cells), np.arange(len(cells)))


USES = {
    "number": ["1", " 2.5", "NA", "1e3"] * 5,
    "boolean": ["Yes", "no", "", "YES"] * 5,
    "date": ["2024-02-29", "2023/1/5", "2024-01-01T10:30:00Z", "?"] * 5,
    "category": ["red", "green", "blue", "red"] * 5,
    "text": SENTENCES,
    None: [f"K{row}x" for row in range(40)],
}


@pytest.mark.parametrize("use", USES)
def test_a_column_is_used_as_all_of_its_cells_say(use):
    assert recognized(words(*USES[use])) == use


@pytest.mark.parametrize(
    ("use", "cells"),
    [
        ("number", [f"202402{day}" for day in range(10, 29)]),
        ("number", [f"0{code}" for code in range(1000, 1040)]),
        ("category", ["cat", "Cat", "cat "] * 5),
        ("category", [f"see you at {hour} o'clock" for hour in range(9)] * 3),
        (None, [f"彼は{row}匹の猫を飼っている" for row in range(20)]),
        (None, [f"{hour}:30" for hour in range(10, 24)]),
    ],
)
def test_what_the_guide_says_that_the_rules_do_not_see(use, cells):
    assert recognized(words(*cells)) == use
    assert use != "category" or len(words(*cells).counts()) in (2, 9)


@pytest.mark.parametrize(
    ("what", "form"),
    [
        *(("numbers", form) for form in ("{},5", "€{}.50", "{} %", "1,2{}", "1'2{}.5", "{} kg", "-{}cm")),
        *(("dates", form) for form in ("{}.12.2024", "12/{}/24", "{}-1-2024 10:30")),
        *((None, form) for form in ("{}:30", "K{}", "{}-99", "1.{}.3", "9{}/123", "see {} cats", "+49 30 {}1234")),
    ],
)
def test_words_that_look_like_numbers_or_dates_are_told(what, form):
    cells = [form.format(number) for number in range(10, 30)]
    assert resembled(words(*cells)) == what
    assert resembled(words(*cells, "x", "", None)) == what, "one of twenty may be something else"
    assert resembled(words(*cells[:9] * 5)) is None, "categories serve a few as well"
    several_units = [cell.rstrip("kgcm€% ") + "ab"[row % 2] for row, cell in enumerate(cells)]
    assert what != "numbers" or resembled(words(*several_units)) is None


def test_a_column_in_another_form_is_named_with_the_form_to_write(tmp_path):
    price, day = [f"{row % 15},50 €" for row in range(40)], [f"{row % 28 + 1}.12.2024" for row in range(40)]
    path = table(tmp_path / "t.csv", price=price, day=day)
    with pytest.warns(UserWarning, match="looks like") as told:
        data = TableData(path=path, labels=("label",)).load()
    price, day = (str(one.message) for one in told)
    assert "'price' of" in price
    assert "looks like numbers ('0,50 €') and is used as categories; write plain numbers, such as 1234.5" in price
    assert "looks like dates ('1.12.2024') and is left out; write the year first, such as 2024-12-31" in day
    assert data.learned["drop"] == ("day",)
    asked = ("price=category", "day=category")
    TableData(path=path, labels=("label",), use=asked).load()  # no warning: warnings are errors


def test_few_rows_and_empty_columns():
    assert recognized(words("u", "v", "w")) == "category"
    assert recognized(words("", None, "n/a")) is None
    assert recognized(words(*USES[None]), texts=True) == "text"


@pytest.mark.parametrize(
    ("cells", "bad"), [(["1.5"] * 30 + ["1,5"], "a number"), (["2024-01-01"] * 30 + ["2024-13-01"], "a date")]
)
def test_a_word_among_numbers_or_dates_is_refused_with_its_row(cells, bad):
    with pytest.raises(DataError, match=rf"column 'c', row 31: '.*' is not {bad}.*; correct it, say --use c=category"):
        recognized(words(*cells))


def test_what_the_user_says_of_columns():
    assert overruled(Path("t.csv"), ["a=b=text", "a=number"], ["a=b", "a=number"]) == {"a=b": "text", "a=number": None}
    with pytest.raises(DataError, match="did you mean 'color'"):
        overruled(Path("t.csv"), ["colour=text"], ["color"])
    with pytest.raises(DataError, match="must end in one of number, category, date, text; got 'sound'"):
        overruled(Path("t.csv"), ["color=sound"], ["color"])


def test_gaps_in_numbers_become_the_median_and_are_marked():
    column = NumberColumn.learn("n", np.array([1.0, np.nan, 3.0, 10.0]))
    assert column.encode(np.array([np.nan, 5.0])).tolist() == [[3, 1], [5, 0]]


def test_unseen_categories_and_gaps():
    learned = CategoryColumn.learn("c", words("a", "a", "b", "b", "rare", ""))
    assert (learned.categories, learned.other, learned.gaps) == (("a", "b"), True, True)
    assert learned.encode(words("b", "never seen", None)).tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    plain = CategoryColumn.learn("c", words("a", "a", "b", "b"))
    assert plain.encode(words("never seen", "a", None)).tolist() == [[0, 0], [1, 0], [0, 0]]
    with pytest.warns(UserWarning, match="most cells of 'c' in 't.csv' are new categories, such as 'A'; the"):
        plain.warn_of_new(words("A", "A", "A", "a", None))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain.warn_of_new(words("A", None, None))
        learned.warn_of_new(words("A", "A", "a"))  # rare ones have a feature


def test_numbers_as_categories_are_one_with_and_without_a_fraction(tmp_path):
    path = table(tmp_path / "t.csv", size=[3, 1, 2, 3] * 10)
    settings = TableData(path=path, labels=("label",), use=("size=category",))
    kept = settings.replace(**settings.load().learned)
    for ending in ("csv", "parquet"):  # a gap makes pandas write integers as floats
        new = table(tmp_path / f"new.{ending}", size=[1.0, 2.0, None, 3.0] * 10)
        found = kept.encoder(None).read(new)
        assert found.feature_names[:3] == ("size = 3", "size = 1", "size = 2")
        assert found.x[:4, :3].tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0]]
    assert CategoryColumn.learn("c", words("1", "1.0", "2", "2")).categories == ("1", "2")


def test_categories_of_older_runs_keep_their_features():
    old = CategoryColumn(name="c", categories=("3", "1.0"), other=True)
    assert old.encode(words("3", "1.0", "3.0", "1")).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]]
    new = CategoryColumn.learn("c", words("3", "3.0", "1.0", "1"))
    assert new.encode(words("3", "1.0", "3.0", "1")).tolist() == [[0, 1], [1, 0], [0, 1], [1, 0]]


def test_dates_have_days_and_places_in_year_and_week():
    column = DateColumn.learn("d", words("2024-01-01", "2024-01-03", ""))
    rows = column.encode(words("2024-01-08", "2024-01-01", None))
    assert rows[:, 0].tolist() == [7, 0, 1]
    assert np.allclose(rows[0, 3:5], rows[1, 3:5], atol=1e-6)  # both are Mondays
    assert rows[2].tolist() == [1, 0, 0, 0, 0, 1]
    assert len(column.features) == rows.shape[1]
    times = DateColumn.learn("d", words("2024-01-01 06:00", "2024-01-01T14:00:00+02:00"))
    assert times.times
    assert times.encode(words("2024-01-01 12:00"))[0, 0] == 0.25


def test_later_words_that_mean_nothing_are_refused_with_their_row():
    column = BooleanColumn.learn("c", words("yes", "no", "yes"))
    assert column.encode(words("NO", "true", "")).tolist() == [[0], [1], [1]]
    with pytest.raises(DataError, match="row 2: 'maybe' is not yes or no; correct it, or leave the cell empty"):
        column.encode(words("yes", "maybe"))
    with pytest.raises(DataError, match="row 1: 'soon' is not a date"):
        DateColumn.learn("d", words("2024-01-01")).encode(words("soon"))


def test_texts_are_what_they_were_after_they_were_kept():
    model = learn_texts("t", SENTENCES)
    assert model.directions.shape[1] <= MOST_DIRECTIONS
    kept = from_bytes(to_bytes({"t/with a slash": model}))["t/with a slash"]
    assert np.array_equal(kept.encode(["a cat", "", None]), model.encode(["a cat", "", None]))
    cat, dog, other = model.encode(["the cat sat", "the dog sat", "the cats sat"])
    assert cat @ other > dog @ other
    assert not model.encode([None]).any()


def test_texts_that_share_nothing_are_refused():
    with pytest.raises(DataError, match="Column 't' has too few texts"):
        learn_texts("t", ["a"])


def table(path: Path, **changes):
    columns = {
        "size": [1.0, 2.0, None, 4.0] * 10,
        "color": ["red", "blue", "red", None] * 10,
        "label": ["u", "v", None, None] * 10,
    }
    return write_table(path, {**columns, **changes}, overwrite=True)


def test_plain_numbers_stay_what_they_were(tmp_path):
    path = table(tmp_path / "t.csv", size=[0.1 * row for row in range(40)], color=["1", "2", "3", "2"] * 10)
    data = TableData(path=path, labels=("label",)).load()
    assert data.files == {}
    assert data.feature_names == ["size", "color"]
    assert data.labeled[0].x.dtype == np.float32
    assert data.unlabeled.x.tolist() == [
        [np.float32(0.1 * row), (1, 2, 3, 2)[row % 4]] for row in data.unlabeled.ids.tolist()
    ]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("space", ["", "\u00a0", "\n"])
def test_numbers_written_as_text_are_numbers_now_and_later(tmp_path, space, gaps, ending):
    cells = [f"{row % 7}.5{space}" for row in range(40)]
    sizes = [None, *cells[1:]] if gaps else cells
    path = table(tmp_path / f"t.{ending}", size=sizes, color=[1, 2, 3, 2] * 10)
    settings = TableData(path=path, labels=("label",))
    data = settings.load()
    assert [column.use for column in data.learned["columns"]] == ["number", "number"]
    new = table(tmp_path / f"new.{ending}", size=cells, color=[1, 2, 3, 2] * 10)
    read = settings.replace(**data.learned).encoder(None).read(new).x
    assert read.shape[1:] == data.labeled[0].sample_shape
    assert read[:, 0].tolist() == [row % 7 + 0.5 for row in range(40)]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_without_gaps_has_medians_for_gaps_that_come_later(tmp_path, ending):
    path = table(tmp_path / f"t.{ending}", size=[float(row) for row in (*range(39), 100)], color=[1, 2, 3, 2] * 10)
    test = table(tmp_path / f"test.{ending}", size=[None, 7.0] * 20, color=[None, *[3] * 39])
    data = TableData(path=path, labels=("label",), test_path=test, use=("size",)).load()
    assert data.feature_names == ["size", "color"]
    assert data.test[0].x[:2].tolist() == [[19.5, 2], [7, 3]]


def test_arrays_have_no_gaps_now_or_later(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.eye(4), y=np.array([0, 1, -1, -1]))
    np.savez(tmp_path / "test.npz", x=np.full((2, 4), np.nan), y=np.array([0, 1]))
    settings = TableData(path=tmp_path / "a.npz")
    assert settings.load().learned == {"drop": ()}
    with pytest.raises(DataError, match="row 1: the cell is empty or NaN"):
        settings.replace(test_path=tmp_path / "test.npz").load()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_is_read_again_as_it_was_learned(tmp_path, ending):
    path = table(tmp_path / f"t.{ending}", note=SENTENCES)
    settings = TableData(path=path, labels=("label",)).pinned()
    first = settings.load()
    kept = settings.replace(**first.learned)
    assert [column.use for column in kept.columns] == ["number", "category", "text"]
    again = kept.load(first.files["texts.safetensors"])
    assert np.array_equal(first.labeled[0].x, again.labeled[0].x)
    assert np.array_equal(first.unlabeled.x, again.unlabeled.x)
    assert TableData.model_validate_json(kept.model_dump_json()) == kept


def test_a_test_file_is_read_by_what_the_data_taught(tmp_path):
    path = table(tmp_path / "t.csv")
    test = table(tmp_path / "test.csv", color=["green", "red", "red", "red"] * 10, size=[9.0] * 39 + [None])
    data = TableData(path=path, labels=("label",), test_path=test).load()
    assert data.feature_names == ["size", "size is empty", "color = red", "color = blue", "color is empty"]
    assert data.test[0].x[0].tolist() == [9, 0, 0, 0, 0]


def test_columns_that_name_the_rows_are_left_out_unless_asked_for(tmp_path):
    path = table(tmp_path / "t.csv", key=[f"K{row}x" for row in range(40)])
    with pytest.warns(UserWarning, match="'key' of '.*' differs in most rows.*--use key=category"):
        data = TableData(path=path, labels=("label",)).load()
    assert data.learned["drop"] == ("key",)
    used = TableData(path=path, labels=("label",), use=("key=category",)).load()
    assert [column.name for column in used.learned["columns"]] == ["size", "color", "key"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_column_without_any_cell_is_left_out_and_told(tmp_path, ending):
    path = table(tmp_path / f"t.{ending}", nothing=[None] * 40)
    with pytest.warns(UserWarning, match="'nothing' of '.*' is empty from top to bottom and is left out"):
        data = TableData(path=path, labels=("label",)).load()
    assert data.learned["drop"] == ("nothing",)
    for use in ("nothing", "nothing=number", "nothing=date", "nothing=text"):
        with pytest.raises(DataError, match="'nothing': all cells are empty; leave it out of --use"):
            TableData(path=path, labels=("label",), use=(use,)).load()


def test_a_number_can_be_used_as_a_category(tmp_path):
    path = table(tmp_path / "t.csv", size=[1, 2, 3, 3] * 10)
    data = TableData(path=path, labels=("label",), use=("size=category",)).load()
    assert data.feature_names[:3] == ["size = 3", "size = 1", "size = 2"]
