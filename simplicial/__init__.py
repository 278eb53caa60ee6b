"""The 2-simplicial Transformer of Clift, Doryn, Murfet and Wallbridge (ICLR 2020) and its environment,
BoxWorld.
"""

import logic_zoo.own_kernels  # noqa: F401 -- raises ImportError if another package has its place
from simplicial import boxworld
from simplicial.agent import Agent, AgentOutput, apply_with_attention, apply_with_entities
from simplicial.attention import OneSimplicialAttention, TwoSimplicialAttention
from simplicial.blocks import RelationalBlock, SimplicialBlock, SimplicialTransformer
from simplicial.layers import DecoderBlock, RotaryAttention, SimplicialDecoder, TrilinearAttention

__all__ = [
    "Agent",
    "AgentOutput",
    "DecoderBlock",
    "OneSimplicialAttention",
    "RelationalBlock",
    "RotaryAttention",
    "SimplicialBlock",
    "SimplicialDecoder",
    "SimplicialTransformer",
    "TrilinearAttention",
    "TwoSimplicialAttention",
    "apply_with_attention",
    "apply_with_entities",
    "boxworld",
]
