"""Two valid specs: the smallest one, and one that sets every field."""

from __future__ import annotations

SMALLEST = "name: a\nmodel: {build: resnet50}\nvariants: [{name: v}]\n"

FULL = """\
name: mobilenetv3_nhwc
description: "free text"
model:
  file: models/x.tflite
  sha256: 00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF
  input_range: [-1, 1.5]
target: llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mcpu=kryo -mattr=+neon -num-cores=1
device: auto
baseline: {runtime: tflite, threads: 1}
variants:
  - name: nhwc
    alter_op_layout: keep
    tune: true
  - name: packed
    convert_layout: NCHW
    alter_op_layout: nchwc
  - name: packed4
    convert_layout: NHWC
    alter_op_layout: {hook: nchwc, block: 4}
    tune: no
  - name: own
    alter_op_layout: my.hooks:alter
tuning: {trials: 10, search: replay-trace, cost_model: random, pack_weights: false, batch: 8, population: 64}
check: {inputs: 3, seed: 2, rtol: 1e-3, atol: 0}
measure: {rounds: 3, repeats: 2, min_repeat_ms: 1, warmup_ms: 0, seed: 0, cores: [4, 5],
  cooldown_ms: 100, cooldown_until_c: 40.5, cooldown_limit_s: 60}
"""
