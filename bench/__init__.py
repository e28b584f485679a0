"""Ours and the peers on one machine, interleaved in one run: only ratios taken like that count."""
