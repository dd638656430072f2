"""VGG-19: K. Simonyan, A. Zisserman, "Very deep convolutional networks for large-scale image
recognition", ICLR 2015.
"""

from collections.abc import Iterator

from torch import Tensor, nn

# The number of convolutions in each group, and its channels as a multiple of the first group's. A pooling ends each group.
GROUPS = ((2, 1), (2, 2), (4, 4), (4, 8), (4, 8))


def feature_layers(width: int) -> Iterator[nn.Module]:
    inputs = 3
    for count, factor in GROUPS:
        for _ in range(count):
            yield nn.Conv2d(inputs, factor * width, 3, padding=1)
            yield nn.ReLU(inplace=True)
            inputs = factor * width
        yield nn.MaxPool2d(2)


class Vgg19(nn.Module):
    """VGG-19 for square images of `size` pixels, with dropout between the layers of the classifier."""

    def __init__(
        self, width: int = 64, size: int = 224, hidden: int = 4096, classes: int = 1000
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(*feature_layers(width))
        inputs = GROUPS[-1][1] * width * (size // 2 ** len(GROUPS)) ** 2
        self.classifier = nn.Sequential(
            nn.Linear(inputs, hidden), nn.ReLU(inplace=True), nn.Dropout(0.5),
            nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Dropout(0.5),
            nn.Linear(hidden, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.features(images).flatten(1))
