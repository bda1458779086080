"""The `vllm-v1` profile: vLLM V1's own decisions, in integer arrays (docs/vllm-v1.md)."""
