"""What tests and benches both need: vLLM's scheduler in a process, a bad network, engines that lie."""
