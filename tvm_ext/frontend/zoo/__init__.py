"""Models built here, from seeded or stored weights, with no deep learning framework."""

from .bert import bert as bert
from .language import Dialogue as Dialogue
from .language import gguf as gguf
from .language import llama as llama
from .mlp import mlp as mlp
from .mobilenet import mobilenet_v2 as mobilenet_v2
from .models import MODELS as MODELS
from .models import save as save
from .resnet import resnet18 as resnet18
from .resnet import resnet34 as resnet34
from .resnet import resnet50 as resnet50
