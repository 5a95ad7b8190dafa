"""All the mistakes, in the order of the protocol."""

from __future__ import annotations

from tests.mutants.committing import COMMITTING
from tests.mutants.encoding import ENCODED
from tests.mutants.encrypting import ENCRYPTING
from tests.mutants.filtering import FILTERING
from tests.mutants.maintaining import MAINTAINING
from tests.mutants.object_stores import OBJECT_STORES
from tests.mutants.on_hdfs import HADOOP
from tests.mutants.placing import PLACED
from tests.mutants.publishing import PUBLISHING
from tests.mutants.reading import READING
from tests.mutants.repairing import REPAIRING
from tests.mutants.replacing import REPLACEMENTS
from tests.mutants.rolling import ROLLED
from tests.mutants.shipping import SHIPPING
from tests.mutants.writing import WRITING

MUTANTS = (
    *(*WRITING, *COMMITTING, *PUBLISHING, *READING, *ROLLED, *REPLACEMENTS, *PLACED),
    *(*FILTERING, *ENCODED, *ENCRYPTING, *MAINTAINING, *SHIPPING, *HADOOP, *OBJECT_STORES, *REPAIRING),
)
