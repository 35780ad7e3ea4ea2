import { execFile, spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { freePort } from "@heddle/base/testing/free-ports";
import { Child } from "../../support/child-process.ts";
import { benchFolder } from "../../support/command-line.ts";
import { now } from "../simulated-task.ts";
import { type PeerLoad, type PeerRun, peerRun, StartFolder, submitEach } from "./short-jobs.ts";

const NODES = 4;
/** More than the jobs of one burst, so that cores are never what they wait for. */
const CPUS = 64;
const READY_MS = 60_000;
const PROGRAMS = ["slurmctld", "slurmd", "munged", "sbatch", "sinfo"];

/** Jobs through one Slurm controller and nodes of this machine; none, with a line, where it is absent. */
export async function runSlurmJobs(loads: readonly PeerLoad[]): Promise<PeerRun[]> {
  const missing = PROGRAMS.filter((name) => spawnSync("which", [name]).status !== 0);
  if (missing.length > 0 || process.getuid?.() !== 0) {
    const what = missing.length > 0 ? missing.join(", ") : "root";
    console.log(`\nno Slurm beside ours: it needs ${what} (apt-get install slurm-wlm munge)`);
    return [];
  }
  const cluster = await SlurmCluster.start();
  try {
    const runs: PeerRun[] = [];
    for (const load of loads) runs.push(await cluster.run(load));
    return runs;
  } finally {
    await cluster.stop();
  }
}

class SlurmCluster {
  readonly #programs: readonly Child[];
  readonly #env: Readonly<Record<string, string>>;

  private constructor(programs: readonly Child[], env: Readonly<Record<string, string>>) {
    this.#programs = programs;
    this.#env = env;
  }

  static async start(): Promise<SlurmCluster> {
    // The path of munge's socket must be short.
    const folder = mkdtempSync(join(tmpdir(), "slurm-"));
    chmodSync(folder, 0o755);
    const configuration = join(folder, "slurm.conf");
    const munge = join(folder, "munge.socket");
    writeFileSync(configuration, await configurationIn(folder, munge));
    writeFileSync(join(folder, "munge.key"), Buffer.alloc(128, 7), { mode: 0o400 });
    mkdirSync(join(folder, "state"));
    const env = { SLURM_CONF: configuration };
    const start = (name: string, args: readonly string[]) =>
      new Child({ name, command: name, args, env, logFile: logOf(`${name} ${args.at(-1)}`) });
    const programs = [
      start("munged", [
        "--foreground",
        "--force",
        `--socket=${munge}`,
        `--key-file=${folder}/munge.key`,
        `--pid-file=${folder}/munge.pid`,
        `--seed-file=${folder}/munge.seed`,
        `--log-file=${folder}/munge.log`,
      ]),
    ];
    await delay(1_000);
    programs.push(start("slurmctld", ["-D"]));
    for (let node = 1; node <= NODES; node++)
      programs.push(start("slurmd", ["-D", "-N", `n${node}`]));
    const cluster = new SlurmCluster(programs, env);
    await cluster.#untilIdle();
    return cluster;
  }

  /** All at once as one array, which is Slurm's fastest way; else each by its own `sbatch`. */
  async run({ jobs, rate }: PeerLoad): Promise<PeerRun> {
    const folder = new StartFolder();
    const sentMs = new Map<string, number>();
    if (rate === 0) {
      const beganMs = now();
      for (let at = 0; at < jobs; at++) sentMs.set(String(at), beganMs);
      await this.#submit(`--array=0-${jobs - 1}`, folder.command("$SLURM_ARRAY_TASK_ID"));
    } else {
      await submitEach({ jobs, rate }, (at) => {
        sentMs.set(String(at), now());
        return this.#submit("--ntasks=1", folder.command(String(at)));
      });
    }
    const startedMs = await folder.read(jobs);
    const unit = rate === 0 ? "task of an array, a process" : "sbatch, a process";
    return peerRun({ system: "Slurm", unit, rate }, sentMs, startedMs);
  }

  async stop(): Promise<void> {
    for (const program of [...this.#programs].reverse()) await program.stop();
  }

  async #submit(flag: string, command: string): Promise<void> {
    const args = [
      flag,
      "--quiet",
      "--output=/dev/null",
      "--chdir=/tmp",
      "--mem=0",
      "--wrap",
      command,
    ];
    await this.#call("sbatch", args);
  }

  async #call(program: string, args: readonly string[]): Promise<string> {
    const { stdout } = await promisify(execFile)(program, args, {
      env: { ...process.env, ...this.#env },
    });
    return stdout;
  }

  async #untilIdle(): Promise<void> {
    const deadline = performance.now() + READY_MS;
    let states = "";
    while (performance.now() < deadline) {
      states = await this.#call("sinfo", ["-h", "-N", "-o", "%T"]).catch(
        (error: Error) => error.message,
      );
      const idle = states.split("\n").filter((state) => state === "idle");
      if (idle.length === NODES) return;
      await delay(500);
    }
    throw new Error(`Slurm's nodes are not idle: ${states}`);
  }
}

function logOf(name: string): string {
  return join(benchFolder, "logs", `${name.replace(/[^a-z0-9]+/g, "-").slice(0, 40)}.log`);
}

/** Without accounting and control groups, which would cost Slurm time. */
async function configurationIn(folder: string, munge: string): Promise<string> {
  const [controller, ...ports] = await Promise.all(
    Array.from({ length: NODES + 1 }, () => freePort()),
  );
  const nodes = ports.map(
    (port, at) =>
      `NodeName=n${at + 1} NodeHostname=${hostname()} NodeAddr=127.0.0.1 Port=${port} CPUs=${CPUS} RealMemory=1000`,
  );
  return [
    "ClusterName=bench",
    `SlurmctldHost=${hostname()}(127.0.0.1)`,
    `SlurmctldPort=${controller}`,
    "SlurmUser=root",
    "AuthType=auth/munge",
    `AuthInfo=socket=${munge}`,
    "CredType=cred/munge",
    `StateSaveLocation=${folder}/state`,
    `SlurmdSpoolDir=${folder}/spool-%n`,
    `SlurmctldPidFile=${folder}/slurmctld.pid`,
    `SlurmdPidFile=${folder}/slurmd-%n.pid`,
    "ProctrackType=proctrack/linuxproc",
    "TaskPlugin=task/none",
    "MpiDefault=none",
    "SelectType=select/cons_tres",
    "SelectTypeParameters=CR_Core",
    "SlurmdParameters=config_overrides",
    "MaxJobCount=100000",
    "MaxArraySize=100001",
    "ReturnToService=2",
    ...nodes,
    "PartitionName=bench Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    "",
  ].join("\n");
}
