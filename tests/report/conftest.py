import pytest
import sample_results

from self_imitation.cli.main import main
from self_imitation.report import aggregate


@pytest.fixture(scope="session")
def reported(tmp_path_factory):
    """A folder with the sample's results and the report on them."""
    folder = tmp_path_factory.mktemp("results")
    sample_results.write(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aggregate, "RESAMPLES", 100)
        assert main(["report", str(folder)]) == 0
    return folder
