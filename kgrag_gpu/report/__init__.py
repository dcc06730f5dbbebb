"""What people read of a run: the table at its end, the plots, and the one-file HTML report."""

from kgrag_gpu.report.page import write_report
from kgrag_gpu.report.tables import print_metrics

__all__ = ["print_metrics", "write_report"]
