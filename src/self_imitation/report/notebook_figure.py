"""A figure that a notebook shows as a picture, also if nothing was drawn with pyplot before."""

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    def _repr_png_(self) -> bytes:
        """Called by Jupyter."""
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=100)
        return picture.getvalue()
