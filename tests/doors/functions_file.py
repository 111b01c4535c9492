"""Pre- and post-processing as people write it; the tests of the Python door compile these and run them in NumPy."""

import logging
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

logger = logging.getLogger(__name__)
MEAN = [0.485, 0.456, 0.406]
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)
EPSILON = 1e-6
CALLS = 0


def normalise(image: NDArray[np.uint8], scale: float = 255.0, debug: bool = False):
    """HWC bytes to a normalised NCHW batch."""
    global CALLS
    CALLS = 1
    start = time.time()
    print("shape", image.shape)
    x = image.astype(np.float32) / scale
    if debug:
        x = x * 0
    if x.mean() > 0.9:
        logger.warning("very bright: %s", x.mean())
    x = (x - np.asarray(MEAN, dtype=np.float32)) / STD
    logger.info("took %f", time.time() - start)
    return x.transpose(2, 0, 1)[None]


def window(image, level: float = 40.0, width: float = 400.0):
    low, high = level - width / 2, level + width / 2
    clipped = np.clip(image, low, high)
    scaled = (clipped - low) / (high - low)
    with Path("log.txt").open("w") as stream:
        stream.write("done")
    return np.where(scaled > 0.5, scaled, scaled**2)


def standardise(image):
    image = image - image.mean(axis=(-2, -1), keepdims=True)
    image /= np.std(image, axis=(-2, -1), keepdims=True) + EPSILON
    return image


def softmax(logits, axis=-1):
    shifted = logits - np.max(logits, axis=axis, keepdims=True)
    e = np.exp(shifted)
    return e / e.sum(axis=axis, keepdims=True)


def postprocess(logits, threshold: float = 0.5):
    prob = softmax(logits, axis=1)
    mask = (prob[:, 1] >= threshold) & ~(prob[:, 0] > 0.9)
    return {"prob": prob, "mask": mask.astype(np.float32), "area": mask.astype(np.float32).sum(axis=(1, 2))}


def pyramid(image):
    levels = []
    for step in range(1, 4):
        if step == 2:
            continue
        part = image[..., ::step, ::-step]
        levels.append(np.ravel(part)[:6])
    a, b = levels
    return np.stack([a, b], axis=0), np.concatenate([row * 2 for row in levels])


def edges(image):
    padded = np.pad(image, ((1, 1), (1, 1)), mode="edge")
    dx = padded[1:-1, 2:] - padded[1:-1, :-2]
    dy = padded[2:, 1:-1] - padded[:-2, 1:-1]
    return np.sqrt(np.square(dx) + dy**2), np.argmax(dx, axis=1), np.swapaxes(dy, 0, 1)[[1, 0]]


def accumulate(image):
    total = np.zeros(3, np.float32)
    weights = [1.0, 2.0]
    weights += [3.0]
    table = np.zeros((3, 2), np.float32)
    for row in range(3):
        table[row, 1] = row
        total += image[row] * weights[row]
    rows, columns = image.shape
    return total + table[:, 1] + rows / columns, [float(v) for v in weights][1] * image


def bright(image):
    x = image * 2
    if x.mean() > 0:
        x = x - x.mean()
    return x


def counts(image):
    while image.sum() > 1:
        image = image / 2
    return image


def remembers(image):
    return image * CALLS


def clocked(image):
    return image * time.time()


def masked(image):
    return image[image > 0]


def writes_part(image):
    image = image * 1
    image[0] = 0
    return image


def aliased(image):
    x = image + 1
    y = x
    x += 1
    return x + y


def aliased_constant(image):
    total = np.zeros(4, np.float32)
    first = total[:1]
    total += image[0]
    return total + first


def chained(image):
    return np.where(0 < image < 1, image, 0)


def scalar(image):
    return image / float(image.max())


def random(image):
    return image + np.random.rand(4, 4)


def foreign(image):
    import scipy.ndimage

    return scipy.ndimage.zoom(image, 2)


def mismatched(image):
    return image + np.zeros(3)


def either(image):
    return image if image.sum() else -image


def asserts(image):
    assert image.min() >= 0
    return image + 1


def constant_assert(image):
    assert image.shape[0] == 5
    return image + 1


def endless(image):
    return endless(image)
