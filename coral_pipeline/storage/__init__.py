"""Where the files of the pipeline lie: in a folder of this machine, or on an object store that many share.

Every partition of an asset, ``<student_run>`` or ``<student_run>|<root>``, is written as a whole and read as a whole,
by any number of processes at once; its ``provenance.json`` is written last and tells what belongs to it.
"""

from coral_pipeline.storage.interface import SEPARATOR, Describe, Storage, fetch_whole
from coral_pipeline.storage.mirror import output_folder
from coral_pipeline.storage.opening import SCRATCH, is_url, open_storage

__all__ = ["SCRATCH", "SEPARATOR", "Describe", "Storage", "fetch_whole", "is_url", "open_storage", "output_folder"]
