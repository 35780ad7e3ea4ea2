import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { kernelMemory, loadKernels } from "@heddle/kernels/kernels";
import { benchFolder } from "../support/command-line.ts";

/** `acc += part`, in GB/s of part (10^9 bytes), the best of the rounds of each. */
export interface SimdAddFigure {
  readonly megabytes: number;
  readonly ours: number;
  /** cc -O3 -march=native; absent without a compiler. */
  readonly c?: number | undefined;
}

const C_PROGRAM = `#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static void add(float *restrict acc, const float *restrict part, size_t n) {
  for (size_t i = 0; i < n; i++) acc[i] += part[i];
}
int main(int argc, char **argv) {
  size_t n = (size_t)atol(argv[1]) / 4; int turns = atoi(argv[2]);
  float *a = aligned_alloc(64, n * 4), *b = aligned_alloc(64, n * 4);
  for (size_t i = 0; i < n; i++) { a[i] = 0; b[i] = 1; }
  double best = 1e9;
  for (int t = 0; t < turns; t++) {
    struct timespec x, y; clock_gettime(CLOCK_MONOTONIC, &x);
    add(a, b, n);
    clock_gettime(CLOCK_MONOTONIC, &y);
    double s = (y.tv_sec - x.tv_sec) + (y.tv_nsec - x.tv_nsec) / 1e9;
    if (s < best) best = s;
  }
  printf("%f %f\\n", n * 4 / best / 1e9, a[n / 2]);
}
`;

/** Our kernel and the C compiler's loop in interleaved rounds. */
export function measureSimdAdd(rounds: number): SimdAddFigure[] {
  const program = compileC();
  return [4, 256].map((megabytes) => {
    const bytes = megabytes * 2 ** 20;
    const turns = Math.max(3, Math.ceil(512 / megabytes));
    const add = ourAdd(bytes);
    let ours = 0;
    let c: number | undefined;
    for (let round = 0; round < rounds; round++) {
      for (let turn = 0; turn < turns; turn++) ours = Math.max(ours, add());
      if (program) {
        const run = spawnSync(program, [String(bytes), String(turns)], { encoding: "utf8" });
        c = Math.max(c ?? 0, Number(run.stdout.split(" ")[0]));
      }
    }
    return { megabytes, ours, c };
  });
}

function ourAdd(bytes: number): () => number {
  const memory = kernelMemory(2 * bytes);
  const kernels = loadKernels(memory);
  new Float32Array(memory.buffer, bytes, bytes / 4).fill(1);
  return () => {
    const begin = performance.now();
    kernels.add(0, bytes, bytes / 4);
    return bytes / 1e6 / (performance.now() - begin);
  };
}

function compileC(): string | undefined {
  mkdirSync(benchFolder, { recursive: true });
  const program = join(benchFolder, "simd-add");
  writeFileSync(`${program}.c`, C_PROGRAM);
  const run = spawnSync("cc", ["-O3", "-march=native", "-o", program, `${program}.c`]);
  if (run.status === 0) return program;
  console.log("There is no C compiler (cc): the add is not compared.");
  return undefined;
}
