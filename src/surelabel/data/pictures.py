"""Pictures from files as uint8 (N, 3, S, S): decoded in one defined way and resized to a square.

What a file may hold, and how it is read:

| in the file | in the array |
|---|---|
| gray, palette, CMYK, YCbCr, HSV | RGB; color profiles are not applied |
| transparency | on a white background |
| 16 bits per channel | the upper 8 |
| an EXIF orientation | turned upright |
| several frames or pages | the first |
| more pixels than `PIL.Image.MAX_IMAGE_PIXELS`, 89 million unless changed | refused |
| integers beyond 16 bits, floating-point numbers, L*a*b* | refused: the value of white is not defined |
| truncated, damaged, or not a picture | refused |

A refused picture never becomes zeros. Damage that does not change a JPEG's length, such as a changed byte, cannot be
detected.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import PositiveInt

from surelabel.base.settings import Settings
from surelabel.base.text import shown
from surelabel.errors import DataError, InvalidInputError

if TYPE_CHECKING:
    from PIL import Image

Fit: TypeAlias = Literal["squash", "crop"]
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
"""The formats that are tried; some of Pillow's other formats start other programs."""

_ALPHA = ("LA", "PA", "RGBA", "RGBa")
_PLAIN = ("1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "HSV")


class PictureSettings(Settings):
    """What is kept of a picture: (3, side, side) bytes, by antialiased bilinear resizing.

    Attributes:
        side: S.
        fit: "squash" keeps all of the picture and changes its aspect ratio; "crop" keeps the aspect ratio and cuts off
            what is outside the largest central square. With several labels per picture, use "squash", because an object
            at the border is labeled too.

    Example:
        >>> PictureSettings(side=32).shape
        (3, 32, 32)
    """

    kind: ClassVar = "pictures"
    in_processes: ClassVar = False
    """Pillow releases the interpreter lock, so threads run in parallel."""

    side: PositiveInt
    fit: Fit = "squash"

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of a decoded picture."""
        return 3, self.side, self.side

    def read(self, path: Path) -> npt.NDArray[np.uint8]:
        """Decode a file."""
        return decode_picture(path, self.side, self.fit)


def decode_picture(
    file: Path | BinaryIO, side: int, fit: Fit = "squash", *, name: str | None = None
) -> npt.NDArray[np.uint8]:
    """Return a picture's pixels, uint8 (3, side, side).

    A JPEG several times as large as that is decoded at a half, a quarter or an eighth of its size, never below twice
    the side.

    Args:
        file: its path, or its bytes as a stream.
        side: as in `PictureSettings`.
        fit: as in `PictureSettings`.
        name: its name in errors.

    >>> import io
    >>> from PIL import Image
    >>> stream = io.BytesIO()
    >>> Image.new("L", (30, 20), 7).save(stream, "PNG")
    >>> x = decode_picture(stream, 4)
    >>> x.shape, x.max()
    ((3, 4, 4), np.uint8(7))
    """
    from PIL import Image

    PictureSettings(side=side, fit=fit)  # refuses others
    called = str(file) if name is None else name
    image = _rgb(called, _load(called, file, side))
    if fit == "crop":
        short = min(image.size)
        left, top = (image.width - short) // 2, (image.height - short) // 2
        image = image.crop((left, top, left + short, top + short))
    small = image.resize((side, side), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(small).transpose(2, 0, 1))


def picture_size(file: Path | BinaryIO, *, name: str | None = None) -> tuple[int, int]:
    """Return the width and the height of a picture, from its file's header; `name` as above."""
    from PIL import Image

    with _faults_named(str(file) if name is None else name), Image.open(file, formats=FORMATS) as image:
        return image.size


def _load(name: str, file: Path | BinaryIO, side: int) -> "Image.Image":
    """Return a file's first picture upright, its pixels read."""
    from PIL import Image, ImageFile, ImageOps

    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise InvalidInputError("PIL.ImageFile.LOAD_TRUNCATED_IMAGES hides truncated pictures; switch it off.")
    with _faults_named(name), Image.open(file, formats=FORMATS) as image:
        # Asked before the pixels are read: a damaged header may claim any size.
        if Image.MAX_IMAGE_PIXELS is not None and image.width * image.height > Image.MAX_IMAGE_PIXELS:
            raise Image.DecompressionBombError(f"{image.width} x {image.height}")
        image.draft(None, (2 * side, 2 * side))
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
        return image


@contextmanager
def _faults_named(name: str) -> Iterator[None]:
    """Turn any error of Pillow on a file into one line that names the file."""
    from PIL import Image, UnidentifiedImageError

    try:
        yield
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        limit = f"PIL.Image.MAX_IMAGE_PIXELS, {Image.MAX_IMAGE_PIXELS} ({shown(error, quote=False, limit=120)})"
        raise DataError(f"Picture '{name}' has more pixels than {limit}; make it smaller, or raise it.") from error
    except (FileNotFoundError, IsADirectoryError) as error:
        raise DataError(f"Picture '{name}' is not a file; check the path.") from error
    except PermissionError as error:
        raise DataError(f"Picture '{name}' may not be read; ask for permission to read it.") from error
    except UnidentifiedImageError as error:
        problem = f"is empty, truncated, damaged or none of {', '.join(FORMATS)}"
        raise DataError(f"Picture '{name}' {problem}; get it again or convert it.") from error
    except MemoryError:
        raise
    except Exception as error:  # On a damaged file, Pillow can raise almost any error.
        if isinstance(error, OSError) and error.errno is not None:
            raise  # An error of the system, not of the picture: too many open files, a disk that cannot be read.
        reason = shown(f"{type(error).__name__}: {error}", quote=False, limit=120)
        raise DataError(f"Picture '{name}' is truncated or damaged ({reason}); get it again.") from error


def _rgb(name: str, image: "Image.Image") -> "Image.Image":
    from PIL import Image

    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() >= 0 and values.max() < 2**16:
            return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    elif image.mode in _ALPHA or (image.mode in _PLAIN and "transparency" in image.info):
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    elif image.mode in _PLAIN:
        return image.convert("RGB")
    problem = f"has pixels of the kind {image.mode!r}, whose black and white are not known"
    raise DataError(f"Picture '{name}' {problem}; save it with 8 or 16 bits a channel.")
