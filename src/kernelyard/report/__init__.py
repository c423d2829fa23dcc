"""Views of what was measured: the ledger of benchmarks, tables, plots and the HTML page."""
