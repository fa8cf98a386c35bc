"""Models built here, from seeded or stored weights, with no deep learning framework."""

from .mlp import mlp as mlp
from .models import MODELS as MODELS
from .models import save as save
from .resnet import resnet18 as resnet18
