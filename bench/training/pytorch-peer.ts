import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { repositoryRoot } from "../support/command-line.ts";
import type { StepFigure } from "./compute.ts";

/** The same programs in PyTorch; none, with a line that says why, where this Python has no PyTorch. */
export function measurePytorch(python: string): readonly StepFigure[] {
  const script = join(repositoryRoot, "bench/training/pytorch-steps.py");
  const run = spawnSync(python, [script], { encoding: "utf8", timeout: 600_000 });
  if (run.status !== 0) {
    const why = run.error?.message ?? run.stderr.trim().split("\n").at(-1);
    console.log(`\nno PyTorch beside ours: ${why} (name a Python that has it with --python)`);
    return [];
  }
  const figures = JSON.parse(run.stdout) as [string, number, number, number][];
  return figures.map(([name, parameters, medianMs, bestMs]) => {
    return { name, parameters, medianMs, bestMs };
  });
}
