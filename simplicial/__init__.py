"""The 2-simplicial Transformer of Clift, Doryn, Murfet and Wallbridge (ICLR 2020) and its environment,
BoxWorld.
"""

from simplicial import boxworld

__all__ = ["boxworld"]
