import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { repositoryRoot } from "../support/command-line.ts";

/** Medians and best times of PyTorch's steps by the program's name, in ms of processor time. */
export type PytorchFigures = ReadonlyMap<
  string,
  { readonly medianMs: number; readonly bestMs: number }
>;

/** Undefined, with a line that says why, where this Python has no PyTorch. */
export function measurePytorch(python: string, turns: number): PytorchFigures | undefined {
  const script = join(repositoryRoot, "bench/training/pytorch-steps.py");
  const run = spawnSync(python, [script, String(turns)], { encoding: "utf8", timeout: 600_000 });
  if (run.status !== 0) {
    const why = run.error?.message ?? run.stderr.trim().split("\n").at(-1);
    console.log(`\nno PyTorch beside ours: ${why} (name a Python that has it with --python)`);
    return undefined;
  }
  const figures = JSON.parse(run.stdout) as [string, number, number][];
  return new Map(figures.map(([name, medianMs, bestMs]) => [name, { medianMs, bestMs }]));
}
