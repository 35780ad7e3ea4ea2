import { accessSync, constants, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Log } from "@heddle/observability/logger";
import { CliError, ContainerCli } from "./container-cli.ts";

const CLIS = ["podman", "docker", "nerdctl"] as const;
/** The time by which an unresponsive CLI may delay a worker's start. */
const PROBE_TIMEOUT_MS = 15_000;
/** Podman's exit codes for a container without such a program, and for one that cannot be made. */
const [noSuchProgram, notMade] = [127, 126];

export interface ContainerEngine {
  readonly cli: ContainerCli;
  /** Whether a container can write to given files; else a client carries its output. */
  readonly writesItself: boolean;
  /** Whether it can give a container a network of its own; else a container has none. */
  readonly hasNetwork: boolean;
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
      const isWhole = (code: number | undefined) => code === noSuchProgram;
      const code = await probeRun(cli, []).catch(() => undefined);
      if (isWhole(code)) return { cli, writesItself: true, hasNetwork: true };
      if (isWhole(await probeRun(cli, ["--network", "none"])))
        return { cli, writesItself: true, hasNetwork: false };
    }
    await cli.run(["info"], { timeoutMs: PROBE_TIMEOUT_MS });
    return { cli, writesItself: false, hasNetwork: true };
  } catch (error) {
    return { name, error: error instanceof Error ? error.message : String(error) };
  }
}

/**
 * The exit code of a call that must fail. Rejects with the engine's error where no container can be
 * made.
 */
async function probeRun(
  cli: ContainerCli,
  network: readonly string[],
): Promise<number | undefined> {
  const folder = await mkdtemp(join(tmpdir(), "heddle-probe-"));
  const limits = ["--memory", "64m", "--pids-limit", "64", "--cpus", "0.5", ...ownLimits()];
  const how = ["--rm", ...network, ...CONFINED, "--log-driver", "passthrough", ...limits];
  try {
    await cli.run(["run", ...how, "--rootfs", folder, "/no-program"], {
      timeoutMs: PROBE_TIMEOUT_MS,
    });
    return 0;
  } catch (error) {
    if (!(error instanceof CliError) || error.code === undefined || error.code === notMade)
      throw error;
    return error.code;
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
