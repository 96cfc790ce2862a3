"""Recipes are scripts: their folder is where they find what they share."""
import sys
from pathlib import Path

RECIPES = str(Path(__file__).parents[2] / "recipes")
if RECIPES not in sys.path:
    sys.path.append(RECIPES)
