"""A whole file of rows by `rewardpool score FILE`, killed on its way: its rows, rates, ledger and a second scoring."""
