"""A suite of problems and a folder of solutions: judged in bulk, kept in a ledger, analysed."""
