"""Small networks for experiments, adapters for others, and the head between an encoder and its loss."""

from reglet.backbones.adapter import Adapter as Adapter
from reglet.backbones.build import build as build
from reglet.backbones.convnet import ConvNet as ConvNet
from reglet.backbones.load_transformers import load_transformers as load_transformers
from reglet.backbones.projector import projector as projector
from reglet.backbones.protocol import Backbone as Backbone
from reglet.backbones.protocol import Tokens as Tokens
from reglet.backbones.resnet import ResNet as ResNet
from reglet.backbones.resnet import resnet8 as resnet8
from reglet.backbones.resnet import resnet14 as resnet14
from reglet.backbones.resnet import resnet18 as resnet18
from reglet.backbones.resnet import resnet50 as resnet50
from reglet.backbones.timm import Timm as Timm
from reglet.backbones.transformers import Transformers as Transformers
from reglet.backbones.vit import ViT as ViT
from reglet.backbones.vit import vit_base as vit_base
from reglet.backbones.vit import vit_mini as vit_mini
from reglet.backbones.vit import vit_small as vit_small
from reglet.backbones.vit import vit_tiny as vit_tiny
