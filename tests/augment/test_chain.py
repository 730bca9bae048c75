"""The whole chain: its order, its independence of the batch, and that it compiles into one graph."""

import copy

import numpy as np
import pytest
import torch
from augment_support import all_pictures, batch, check_one_graph, draws_of, pictures, with_pillow
from PIL import ImageEnhance
from pydantic import ValidationError

from surelabel.augment.chain import Augment
from surelabel.augment.draws import Draws
from surelabel.augment.randaugment import rand_augment
from surelabel.augment.settings import AugmentSettings
from surelabel.data.draws import draw, sample_keys
from surelabel.errors import InvalidInputError

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)
EVERYTHING = AugmentSettings(flip=True, crop=4, hole=16, jitter=0.4, operations=2, mean=MEAN, std=STD)
PUBLISHED = EVERYTHING.replace(operations=3, magnitude=4)
CHAINS = {"random": EVERYTHING, "published": PUBLISHED, "weak": EVERYTHING.replace(operations=0, jitter=0)}


def numpy_uniform(name: str, key: int) -> float:
    return float(draw(0, 0, sample_keys(np.array([key])), name)[0] >> np.uint64(40)) / 2**24


def numpy_integer(name: str, key: int, count: int) -> int:
    return (int(draw(0, 0, sample_keys(np.array([key])), name)[0] >> np.uint64(32)) * count) >> 32


def _reference_weak(image: np.ndarray, key: int) -> np.ndarray:
    """Flip, reflected crop, jitter, normalize and hole of one image, from the numpy hash, Pillow and slices."""
    if numpy_uniform("flip", key) < 0.5:
        image = image[:, ::-1]
    x, y = numpy_integer("crop x", key, 9), numpy_integer("crop y", key, 9)
    image = np.pad(image, ((4, 4), (4, 4), (0, 0)), mode="reflect")[y : y + 32, x : x + 32]
    for name, enhancer in (
        ("brightness", ImageEnhance.Brightness),
        ("contrast", ImageEnhance.Contrast),
        ("color", ImageEnhance.Color),
    ):
        factor = 0.6 + 0.8 * numpy_uniform(f"jitter {name}", key)
        image = with_pillow(lambda i, e=enhancer, f=factor: e(i).enhance(f), image).numpy().transpose(1, 2, 0)
    normalized = (image / 255 - np.array(MEAN)) / np.array(STD)
    half = (1 + numpy_integer("hole side", key, 16)) // 2
    x, y = numpy_integer("hole x", key, 32), numpy_integer("hole y", key, 32)
    normalized[max(0, y - half) : y + half, max(0, x - half) : x + half] = 0
    return normalized.transpose(2, 0, 1)


def test_flip_crop_jitter_normalize_and_hole_are_their_reference() -> None:
    chosen = all_pictures() * 4
    augmented = Augment(EVERYTHING.replace(operations=0))(batch(*chosen), draws_of(np.arange(len(chosen))))
    level = 1 / 255 / min(STD)
    for key, (image, result) in enumerate(zip(chosen, augmented, strict=True)):
        # Three enhancements in a row, each of which may be one level away and multiply what came before by up to 1.4.
        np.testing.assert_allclose(result.numpy(), _reference_weak(image, key), atol=4.5 * level)


def test_weak_augmentation_is_exact() -> None:
    chosen = all_pictures()
    settings = AugmentSettings(flip=True, crop=4)
    augmented = Augment(settings)(batch(*chosen), draws_of(np.arange(len(chosen))))
    for key, (image, result) in enumerate(zip(chosen, augmented, strict=True)):
        flipped = image[:, ::-1] if numpy_uniform("flip", key) < 0.5 else image
        x, y = numpy_integer("crop x", key, 9), numpy_integer("crop y", key, 9)
        expected = np.pad(flipped, ((4, 4), (4, 4), (0, 0)), mode="reflect")[y : y + 32, x : x + 32]
        torch.testing.assert_close(result, batch(expected)[0] / 255)


def test_randaugment_comes_first() -> None:
    images = batch(*all_pictures())
    draws = draws_of(np.arange(len(images)))
    first = rand_augment(images.to(torch.float32), draws, 2).to(torch.uint8)
    rest = EVERYTHING.replace(operations=0)
    assert torch.equal(Augment(EVERYTHING)(images, draws), Augment(rest)(first, draws))


@pytest.mark.parametrize("name", CHAINS)
def test_a_sample_does_not_depend_on_the_batch_it_is_in(name: str) -> None:
    augment, images = Augment(CHAINS[name]), batch(*all_pictures() * 3)
    ids = np.arange(len(images))
    whole = augment(images, draws_of(ids))
    shuffled = np.random.default_rng(0).permutation(len(images))
    assert torch.equal(augment(images[shuffled], draws_of(shuffled)), whole[shuffled])
    for row in (0, 17, 44):
        assert torch.equal(augment(images[row : row + 1], draws_of(ids[row : row + 1])), whole[row : row + 1])


@pytest.mark.parametrize("name", CHAINS)
def test_epochs_and_seeds_give_other_samples_and_the_same_ones_again(name: str) -> None:
    augment, images = Augment(CHAINS[name]), batch(*[pictures()["detail 0"]] * 40)
    first = augment(images, draws_of(np.arange(40)))
    assert torch.equal(first, augment(images, draws_of(np.arange(40))))
    for other in (draws_of(np.arange(40), epoch=1), draws_of(np.arange(40), seed=1)):
        same = (augment(images, other) == first).flatten(1).all(1)
        assert same.sum() < 10


@pytest.mark.parametrize(
    ("name", "backend"),
    [pytest.param("random", "aot_eager", marks=pytest.mark.slow), ("published", "eager"), ("weak", "eager")],
)
def test_the_chain_compiles_into_one_graph_and_gives_the_same(name: str, backend: str) -> None:
    check_one_graph(Augment(CHAINS[name]), batch(*all_pictures()), backend)


def test_draws_made_outside_can_be_given_to_a_compiled_chain() -> None:
    augment, images = Augment(EVERYTHING), batch(*all_pictures())
    torch._dynamo.reset()
    compiled = torch.compile(augment, backend="eager", fullgraph=True)
    for seed in (0, 1):
        draws = draws_of(np.arange(len(images)), seed)
        assert torch.equal(compiled(images, draws), augment(images, draws))


@pytest.mark.parametrize("name", CHAINS)
def test_nothing_in_the_chain_looks_at_a_value(name: str) -> None:
    # Tensors without values raise when one is asked for, as a host synchronization would.
    with torch.device("meta"):
        draws = Draws(torch.tensor(0), torch.arange(8), torch.zeros(8, dtype=torch.int64))
        images = torch.zeros(8, 3, 32, 32, dtype=torch.uint8)
    assert Augment(CHAINS[name])(images, draws).shape == (8, 3, 32, 32)


def test_settings_that_are_off_leave_the_normalized_image() -> None:
    images = batch(*all_pictures())
    draws = draws_of(np.arange(len(images)))
    for settings in (AugmentSettings(), AugmentSettings(mean=MEAN, std=STD)):
        augment = Augment(settings)
        assert torch.equal(augment(images, draws), augment.plain(images))


def test_plain_images_are_normalized_by_channel() -> None:
    images = batch(*all_pictures())
    plain = Augment(EVERYTHING).plain(images)
    mean, std = torch.tensor(MEAN).reshape(3, 1, 1), torch.tensor(STD).reshape(3, 1, 1)
    assert plain.dtype == torch.float32
    torch.testing.assert_close(plain, (images / 255 - mean) / std, atol=1e-5, rtol=1e-5)
    assert torch.equal(Augment(AugmentSettings()).plain(images), images * torch.tensor(1 / 255))


@pytest.mark.parametrize("kind", ["grey", "wide", "large"])
def test_other_shapes_go_through_the_whole_chain(kind: str) -> None:
    shape = {"grey": (5, 1, 28, 28), "wide": (5, 3, 20, 48), "large": (2, 3, 96, 96)}[kind]
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))
    settings = EVERYTHING.replace(mean=None, std=None)
    augmented = Augment(settings)(images, draws_of(np.arange(shape[0])))
    assert augmented.shape == shape
    assert augmented.min() >= 0
    assert augmented.max() <= 1


def test_a_batch_in_another_memory_format_gives_the_same() -> None:
    images = batch(*all_pictures())
    draws = draws_of(np.arange(len(images)))
    other = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(Augment(EVERYTHING)(other, draws), Augment(EVERYTHING)(images, draws))


def test_autocast_does_not_touch_the_chain() -> None:
    images = batch(*all_pictures())
    draws = draws_of(np.arange(len(images)))
    with torch.autocast("cpu", torch.bfloat16):
        under = Augment(EVERYTHING)(images, draws)
    assert torch.equal(under, Augment(EVERYTHING)(images, draws))


def test_the_batch_itself_is_left_alone() -> None:
    images = batch(*all_pictures())
    before = copy.deepcopy(images)
    Augment(EVERYTHING)(images, draws_of(np.arange(len(images))))
    assert torch.equal(images, before)


def test_an_empty_batch_stays_empty() -> None:
    images = torch.zeros(0, 3, 32, 32, dtype=torch.uint8)
    assert Augment(EVERYTHING)(images, draws_of(np.arange(0))).shape == (0, 3, 32, 32)


def test_flip_crop_and_hole_take_any_number_of_channels() -> None:
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, 5, 16, 16), dtype=np.uint8))
    settings = AugmentSettings(flip=True, crop=2, hole=4)
    assert Augment(settings)(images, draws_of(np.arange(4))).shape == (4, 5, 16, 16)
    for change, what in (({"jitter": 0.4}, "jitter"), ({"operations": 1}, "RandAugment")):
        with pytest.raises(InvalidInputError, match=f"channels for {what}. Got 5 channels instead"):
            Augment(settings.replace(**change))(images, draws_of(np.arange(4)))


@pytest.mark.parametrize(
    ("images", "count", "message"),
    [
        (torch.zeros(2, 3, 8, 8), 2, "'images' argument must be uint8 .* Got torch.float32 of shape"),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), 3, r"must be uint8 of shape \(N, C, H, W\).* Got .* \(3, 8, 8\)"),
        (torch.zeros(2, 3, 4, 8, dtype=torch.uint8), 2, r"'crop' argument must be smaller .* \(4, 8\). Got 4 instead"),
        (torch.zeros(2, 1, 8, 8, dtype=torch.uint8), 2, "'mean' argument must have one number per channel, 1. Got"),
    ],
)
def test_what_cannot_be_augmented_is_named(images: torch.Tensor, count: int, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Augment(EVERYTHING)(images, draws_of(np.arange(count)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"magnitude": 31}, "less than or equal to 30"),
        ({"magnitude": -1}, "greater than or equal to 0"),
        ({"crop": -1}, "greater than or equal to 0"),
        ({"jitter": -0.1}, "greater than or equal to 0"),
        ({"mixup": float("inf")}, "less than or equal to 1000000"),
        ({"std": (0.2, 0.0, 0.2)}, "'std' setting must be above 0 for every channel"),
        ({"mean": (0.5,), "std": (0.2, 0.2, 0.2)}, "Got 1 and 3 instead"),
        ({"cutout": 16}, "no setting 'cutout'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        AugmentSettings(**changes)


def test_a_magnitude_without_operations_warns() -> None:
    with pytest.warns(UserWarning, match=r"'magnitude' \(4\) is ignored: 'operations' is 0"):
        Augment(AugmentSettings(magnitude=4))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", CHAINS)
def test_a_compiled_chain_in_a_cuda_graph_gives_the_samples_of_the_cpu(name: str) -> None:
    augment, images = Augment(CHAINS[name]), batch(*all_pictures() * 8)
    keys, epochs = torch.arange(len(images)), torch.zeros(len(images), dtype=torch.int64)
    seed, keys_there, epochs_there, images_there = (x.cuda() for x in (torch.tensor(0), keys, epochs, images))
    compiled = torch.compile(lambda: augment(images_there, Draws(seed, keys_there, epochs_there)), fullgraph=True)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            compiled()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compiled()
    for value in (0, 1):
        seed.fill_(value)
        graph.replay()
        expected = augment(images, Draws(torch.tensor(value), keys, epochs))
        # A cosine that is another one in its last bit moves a pixel of a rotated image now and then.
        assert (result.cpu() - expected).abs().gt(1e-4).to(torch.float32).mean() < 0.001


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_chain_runs_where_only_deterministic_algorithms_are_allowed() -> None:
    images = batch(*all_pictures()).cuda()
    draws = draws_of(np.arange(len(images)), device="cuda")
    expected = Augment(EVERYTHING)(images, draws)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(Augment(EVERYTHING)(images, draws), expected)
    finally:
        torch.use_deterministic_algorithms(False)
