import { join } from "node:path";
import type { TaskLaunch } from "../executors/executor.ts";
import { INHERITED } from "../executors/task-environment.ts";
import { LEASE_FILE } from "../leases/lease-keeper.ts";
import type { RunnerProgram } from "./program/messages.ts";
import type { RunnerControl } from "./runner-control.ts";

interface RunnerPlan {
  readonly control: RunnerControl;
  /** The folder of the worker's lease. */
  readonly leaseFolder: string;
  /** It runs in an image, whose own directory and variables stay. */
  readonly isInImage?: boolean | undefined;
}

/** What a task's runner is to run. */
export function runnerProgram(launch: TaskLaunch, plan: RunnerPlan): RunnerProgram {
  const { environment, secretVariables, stdout, stderr, workingDirectory } = launch;
  const { spec, id, devices } = launch.plan;
  const { control, leaseFolder, isInImage = false } = plan;
  const named = { ...spec.environment, ...secretVariables };
  const isForeign = (name: string) => isOfDevices(name) || (isInImage && INHERITED.includes(name));
  const own = Object.entries(environment).filter(([name]) => name in named || !isForeign(name));
  const isFirst = id.rank === 0 || spec.hostNetwork || spec.tasks < 2;
  return {
    command: spec.command,
    // A runner sees the task's devices alone, counted from 0.
    environment: { ...Object.fromEntries(own), HEDDLE_GPUS: [...devices.keys()].join(",") },
    workingDirectory: isInImage && spec.workingDirectory === "" ? "" : workingDirectory,
    home: join(launch.directory, "work"),
    pipes: control.pipes,
    logs: [stdout, stderr],
    leaseFile: join(leaseFolder, LEASE_FILE),
    rendezvousHost: isFirst ? "" : (environment["MASTER_ADDR"] ?? ""),
  };
}

/** The devices' indexes on the worker's node mean nothing elsewhere. */
function isOfDevices(name: string): boolean {
  return name === "CUDA_VISIBLE_DEVICES" || name === "CUDA_DEVICE_ORDER";
}
