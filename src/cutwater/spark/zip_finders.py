"""What Python remembers of zip files on its path, and why a daemon that forks workers forgets it."""

import sys
import zipimport


def forget_zip_finders() -> None:
    """Called before the fork, when everything is imported.

    Spark has each worker look at its paths anew, and a finder of a zip file then reads the file's whole list of contents:
    there is one for each package of pyspark.zip, and 0.2 s of a worker's start went into them. What is imported later makes
    the finders that it needs.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]
