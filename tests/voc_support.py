"""Small data sets in exactly the official format of VOC2007, written as the devkit's files are."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from surelabel.data.sets.voc import VOC_CLASSES

Objects = Sequence[tuple[str, int]]
"""Of each object in a picture: its class, and whether it is marked difficult."""

_OBJECT = """\
	<object>
		<name>{name}</name>
		<pose>Unspecified</pose>
		<truncated>1</truncated>
		<difficult>{difficult}</difficult>
		<bndbox>
			<xmin>8</xmin>
			<ymin>12</ymin>
			<xmax>35</xmax>
			<ymax>30</ymax>
		</bndbox>{parts}
	</object>
"""

_PARTS = """
		<part>
			<name>head</name>
			<bndbox>
				<xmin>9</xmin>
				<ymin>13</ymin>
				<xmax>15</xmax>
				<ymax>19</ymax>
			</bndbox>
		</part>"""

_ANNOTATION = """\
<annotation>
	<folder>VOC2007</folder>
	<filename>{name}.jpg</filename>
	<source>
		<database>The VOC2007 Database</database>
		<annotation>PASCAL VOC2007</annotation>
		<image>flickr</image>
		<flickrid>341012865</flickrid>
	</source>
	<owner>
		<flickrid>Fried Camels</flickrid>
		<name>Jinky the Fruit Bat</name>
	</owner>
	<size>
		<width>48</width>
		<height>36</height>
		<depth>3</depth>
	</size>
	<segmented>0</segmented>
{objects}</annotation>
"""


def annotation(name: str, objects: Objects) -> str:
    texts = [
        _OBJECT.format(name=label, difficult=difficult, parts=_PARTS if label == "person" else "")
        for label, difficult in objects
    ]
    return _ANNOTATION.format(name=name, objects="".join(texts))


def write_voc(folder: Path, parts: Mapping[str, Mapping[str, Objects]]) -> Path:
    """Write VOCdevkit/VOC2007 with some parts into a folder and return it; a picture's color follows from its name."""
    root = folder / "VOCdevkit" / "VOC2007"
    for name in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for part, pictures in parts.items():
        for name, objects in pictures.items():
            (root / "Annotations" / f"{name}.xml").write_text(annotation(name, objects))
            color = np.random.default_rng(int(name)).integers(0, 256, 3)
            Image.new("RGB", (48, 36), tuple(color.tolist())).save(root / "JPEGImages" / f"{name}.jpg", quality=100)
        main = root / "ImageSets" / "Main"
        (main / f"{part}.txt").write_text("".join(f"{name}\n" for name in pictures))
        for label in VOC_CLASSES:
            lines = [f"{name} {devkit_label(objects, label):2d}\n" for name, objects in pictures.items()]
            (main / f"{label}_{part}.txt").write_text("".join(lines))
    return root


def devkit_label(objects: Objects, label: str) -> int:
    """What the devkit's lists say: 1 present, -1 absent, 0 only difficult ones."""
    marks = [difficult for name, difficult in objects if name == label]
    if not marks:
        return -1
    return 0 if all(marks) else 1


def small_voc(trainval: int = 40, test: int = 20, seed: int = 0) -> dict[str, dict[str, Objects]]:
    """Random objects, every class often enough in each part, a fifth of them difficult."""
    generator = np.random.default_rng(seed)

    def objects(number: int) -> Objects:
        first = (VOC_CLASSES[number % 20], 0)
        more = generator.integers(0, 20, size=generator.integers(0, 4))
        return [first, *((VOC_CLASSES[code], int(generator.random() < 0.2)) for code in more)]

    names = [f"{number:06}" for number in range(1, trainval + test + 1)]
    parts = {"trainval": names[:trainval], "test": names[trainval:]}
    return {part: {name: objects(row) for row, name in enumerate(these)} for part, these in parts.items()}
