"""Engine, models, rewards, graders and runners; also under the import paths of OpenJudge."""

from rm_gallery.core.utils.compat import open_paths

open_paths(__name__, __path__[0])
