"""FakeSglang: the few names of SGLang's Python API that the launcher uses, and answers of the recorded shapes."""
