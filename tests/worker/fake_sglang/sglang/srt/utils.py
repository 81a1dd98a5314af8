def kill_process_tree(parent_pid: int, include_parent: bool = True) -> None:
    """Nothing was started."""
