import { accessSync, constants, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Log } from "@heddle/observability/logger";
import { CliError, ContainerCli } from "./container-cli.ts";

const CLIS = ["podman", "docker", "nerdctl"] as const;
/** The time by which an unresponsive CLI may delay a worker's start. */
const PROBE_TIMEOUT_MS = 15_000;
/** A program that no container has. */
const NO_PROGRAM = "/no-program";
/** Podman's exit code for that; also for helpers of its own that are missing, as iptables. */
const NOT_FOUND = 127;
/** Its exit code for an option that it does not know. */
const TOO_OLD = 125;

export interface ContainerEngine {
  readonly cli: ContainerCli;
  /** Whether a container can write to given files; else a client carries its output. */
  readonly writesItself: boolean;
  /** Why it can give a container no network of its own: a container then has none. */
  readonly networkFault?: string | undefined;
}

/** Restrictions of every container; the engine's default seccomp filter stays as well. */
export const CONFINED: readonly string[] = [
  "--cap-drop",
  "all",
  "--security-opt",
  "no-new-privileges",
];

/** The first engine that works here; the failure of an installed one is logged. */
export async function findContainerEngine(log: Log): Promise<ContainerEngine | undefined> {
  const tried = await Promise.all(CLIS.filter(isInstalled).map(probe));
  const found = tried.find((each) => "cli" in each);
  for (const each of tried) {
    if (found || "cli" in each) break;
    const advice = "no job with a `container_image` comes to this worker: repair it and restart it";
    log.info({ ...each, advice }, "no container can be run here");
  }
  return found;
}

type Verdict = ContainerEngine | { readonly name: string; readonly error: string };

/** Podman has no server to query: a container without an image and a program is run. */
async function probe(name: string): Promise<Verdict> {
  const cli = new ContainerCli(name);
  try {
    if (name === "podman") {
      const networkFault = await probeRun(cli, []);
      if (!networkFault) return { cli, writesItself: true };
      const fault = await probeRun(cli, ["--network", "none"]);
      if (!fault) return { cli, writesItself: true, networkFault: networkFault.message };
      // One that is too old for these options works through a client.
      if (fault.code !== TOO_OLD) throw fault;
    }
    await cli.run(["info"], { timeoutMs: PROBE_TIMEOUT_MS });
    return { cli, writesItself: false };
  } catch (error) {
    return { name, error: error instanceof Error ? error.message : String(error) };
  }
}

/** Runs a program that is not there; returns the error unless that was the only fault. */
async function probeRun(
  cli: ContainerCli,
  network: readonly string[],
): Promise<CliError | undefined> {
  const folder = await mkdtemp(join(tmpdir(), "heddle-probe-"));
  const limits = ["--memory", "64m", "--pids-limit", "64", "--cpus", "0.5", ...ownLimits()];
  const how = ["--rm", ...network, ...CONFINED, "--log-driver", "passthrough", ...limits];
  try {
    await cli.run(["run", ...how, "--rootfs", folder, NO_PROGRAM], {
      timeoutMs: PROBE_TIMEOUT_MS,
    });
    return new CliError(`it ran ${NO_PROGRAM}, which is not there`);
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    return error.code === NOT_FOUND && error.message.includes(NO_PROGRAM) ? undefined : error;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * A container has this worker's limits on files and processes. Podman's default is higher, which a
 * system may refuse even root.
 */
export function ownLimits(): string[] {
  const limits = text("/proc/self/limits");
  const hard = (row: string) => Number(new RegExp(`^${row} +\\S+ +(\\d+) `, "m").exec(limits)?.[1]);
  // Podman itself goes down to this number.
  const mostProcesses = Number(text("/proc/sys/kernel/pid_max")) || Number.NaN;
  const bounds = { nofile: hard("Max open files"), nproc: hard("Max processes") || mostProcesses };
  return Object.entries(bounds).flatMap(([name, own]) => {
    const bound = name === "nproc" ? Math.min(own, mostProcesses) : own;
    return Number.isNaN(bound) ? [] : ["--ulimit", `${name}=${bound}:${bound}`];
  });
}

function isInstalled(name: string): boolean {
  return (process.env["PATH"] ?? "").split(":").some((folder) => {
    try {
      accessSync(join(folder, name), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

function text(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return ""; // A system without /proc.
  }
}
