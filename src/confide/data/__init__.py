"""Data for the demonstration and the documentation, with their schemas. See PROVENANCE.md.

None of these functions uses the network.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

__all__ = ["cps1988", "randhie"]


def cps1988() -> tuple[Path, Path]:
    """Return the paths of the packaged wage table and of its schema.

    28,155 rows of the March 1988 Current Population Survey: education, experience, region, metropolitan and
    part-time status (declared public), and the weekly wage (the secret label, modelled on the log scale).

    Returns
    -------
    table, schema : Path
        A Parquet file and a ``schema.toml``.
    """
    return _packaged("cps1988.parquet"), _packaged("cps1988.toml")


def randhie(folder: str | Path) -> tuple[Path, Path]:
    """Write the RAND Health Insurance Experiment from statsmodels to `folder`; return table and schema.

    20,190 person-years with the plan of each (public) and its number of visits to a physician (the secret
    label, declared in [0, 20]). There is no id of a person, so the privacy unit is a person-year.

    Parameters
    ----------
    folder : path
        Receives ``randhie.parquet``; made when absent.

    Returns
    -------
    table, schema : Path

    Raises
    ------
    ModuleNotFoundError
        If statsmodels is not installed.
    """
    try:
        from statsmodels.datasets import randhie as source
    except ImportError:
        raise ModuleNotFoundError(
            "The RAND Health Insurance Experiment comes from statsmodels, which is not installed. "
            "Install it with: pip install 'confide[demo]'."
        ) from None
    import pyarrow as pa
    import pyarrow.parquet as pq

    frame: Any = source.load_pandas().data
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    path = target / "randhie.parquet"
    pq.write_table(pa.table({name: frame[name].to_numpy() for name in frame.columns}), path)
    return path, _packaged("randhie.toml")


def _packaged(name: str) -> Path:
    # Wheels are unpacked on installation, so a file of the package has a path.
    return Path(str(resources.files("confide.data").joinpath(name)))
