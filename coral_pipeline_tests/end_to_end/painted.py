"""What a browser has really painted."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.sync_api import Locator

_LOOK = """async image => {
  await image.decode();
  const [width, height] = [image.naturalWidth, image.naturalHeight];
  const canvas = Object.assign(document.createElement('canvas'), {width, height});
  const paper = canvas.getContext('2d');
  paper.fillStyle = 'white';
  paper.fillRect(0, 0, width, height);
  paper.drawImage(image, 0, 0);
  const bytes = paper.getImageData(0, 0, width, height).data;
  const colours = new Map();
  for (let at = 0; at < bytes.length; at += 4) {
    const colour = bytes[at] << 16 | bytes[at + 1] << 8 | bytes[at + 2];
    colours.set(colour, (colours.get(colour) || 0) + 1);
  }
  return [width, height, 1 - (colours.get(0xffffff) || 0) / (width * height), colours.size];
}"""


@dataclass(frozen=True)
class Painting:
    """An image as it came out."""

    width: int
    height: int
    """Pixels of the image itself; 0 where it is broken."""
    ink: float
    """Share of the pixels that are not white."""
    colours: int


def painting(image: Locator) -> Painting:
    """The pixels of an image of the page."""
    width, height, ink, colours = image.evaluate(_LOOK)
    return Painting(width, height, ink, colours)


def assert_painted(image: Locator) -> None:
    """The image is visible, not broken, and neither blank nor a block of one colour."""
    image.wait_for()
    found = painting(image)
    assert found.width >= 100 and found.height >= 20, found
    assert 0.002 < found.ink < 0.95, found
    assert found.colours >= 3, found
