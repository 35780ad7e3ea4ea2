import { expect, it } from "vitest";
import { readSlurmSettings } from "./slurm-settings.ts";

const read = (flags: Record<string, string>) => () => readSlurmSettings(flags);

it("Slurm settings: partition and options of sbatch are read", () => {
  const flags = {
    executor: "slurm",
    "slurm-partition": "gpu-long",
    "slurm-options": " --account=ml  --exclusive ",
  };
  const settings = { partition: "gpu-long", options: ["--account=ml", "--exclusive"] };
  expect(readSlurmSettings(flags)).toEqual(settings);
  expect(readSlurmSettings({ executor: "slurm" })).toEqual({ partition: "", options: [] });
  expect(readSlurmSettings({ executor: "pod" })).toBeUndefined();
});

it("Slurm settings: what the worker gives itself, and no option, are refused by name", () => {
  const executor = "slurm";
  expect(read({ "slurm-partition": "a" })).toThrow("add --executor slurm");
  expect(read({ executor, "slurm-partition": "a;b" })).toThrow("--slurm-partition takes");
  for (const name of ["mem", "gpus-per-node", "uid", "export", "wrap", "array"]) {
    expect(read({ executor, "slurm-options": `--${name}=1` })).toThrow(`cannot have --${name}`);
  }
  for (const option of ["-pmain", "script.sh", "--A=1"]) {
    expect(read({ executor, "slurm-options": option })).toThrow(`not ${option}`);
  }
});
