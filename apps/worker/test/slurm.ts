import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "@heddle/base/testing/until";

const GPUS = 2;
const PATH = `${process.env["PATH"]}:/usr/sbin`;

/** Why no Slurm can be run here; undefined where one can. */
export function whyNoSlurm(): string | undefined {
  if (process.getuid?.() !== 0) return "slurmd runs as root only";
  const isHere = (name: string) => spawnSync("which", [name], { env: { PATH } }).status === 0;
  const missing = ["munged", "slurmctld", "slurmd", "sbatch", "squeue"].filter(
    (name) => !isHere(name),
  );
  if (missing.length === 0) return undefined;
  return `no ${missing.join(", ")}: apt-get install slurm-wlm munge`;
}

/** A Slurm of one controller and one node, on loopback, with all its files in a folder. */
export class SlurmCluster {
  /** The folder of all its files. */
  readonly folder = mkdtempSync(join(tmpdir(), "heddle-slurm-"));
  readonly #programs: ChildProcess[] = [];

  /** The environment of Slurm's commands. */
  get environment(): Record<string, string> {
    return { SLURM_CONF: join(this.folder, "slurm.conf"), PATH };
  }

  async start(): Promise<void> {
    const at = (name: string) => join(this.folder, name);
    for (const name of ["state", "spool"]) mkdirSync(at(name));
    writeFileSync(at("munge.key"), randomBytes(1_024), { mode: 0o600 });
    writeFileSync(at("slurm.conf"), await this.#settings());
    // Slurm wants to see a file for each device, of whatever kind.
    for (let index = 0; index < GPUS; index++) writeFileSync(at(`gpu${index}`), "");
    const devices = at(`gpu[0-${GPUS - 1}]`);
    writeFileSync(at("gres.conf"), `Name=gpu Type=h100 File=${devices}\n`);
    const files = ["key-file", "pid-file", "log-file", "seed-file", "socket"];
    const munge = files.map((name) => `--${name}=${at(name.replace("key-file", "munge.key"))}`);
    this.#run("munged", ["--force", "--foreground", ...munge]);
    await until("munge answers", () =>
      this.#answers("munge", ["--no-input", `--socket=${at("socket")}`]),
    );
    this.#run("slurmctld", ["-D", "-f", at("slurm.conf")]);
    this.#run("slurmd", ["-D", "-f", at("slurm.conf"), "-N", hostname()]);
    const isIdle = () => this.run("sinfo", "--noheader", "--format=%t").trim() === "idle";
    await until("the node is idle", isIdle, 60_000).catch((error: Error) => {
      const log = readFileSync(at("slurmctld.log"), "utf8").slice(-2_000);
      throw new Error(`${error.message}: ${log}`, { cause: error });
    });
  }

  /** The command's output; empty where it fails. */
  run(program: string, ...args: string[]): string {
    const { stdout } = spawnSync(program, args, { env: this.environment, timeout: 30_000 });
    return stdout?.toString() ?? "";
  }

  /** The names and states of jobs that are not over. */
  get jobs(): string[] {
    const text = this.run("squeue", "--noheader", "--format=%j %T");
    return text.split("\n").filter((line) => line !== "");
  }

  /** Its controller answers nothing until the result is called. */
  async pauseController(): Promise<() => void> {
    const controller = this.#programs[1];
    controller?.kill("SIGSTOP");
    return () => void controller?.kill("SIGCONT");
  }

  async close(): Promise<void> {
    execFileSync("scancel", ["--me"], { env: this.environment });
    for (const child of this.#programs.reverse()) {
      if (child.exitCode !== null) continue;
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await ended;
    }
    rmSync(this.folder, { recursive: true, force: true });
  }

  #answers(program: string, args: string[]): boolean {
    return spawnSync(program, args, { env: { PATH }, timeout: 5_000 }).status === 0;
  }

  #run(program: string, args: string[]): void {
    this.#programs.push(spawn(program, args, { env: this.environment, stdio: "ignore" }));
  }

  async #settings(): Promise<string> {
    const folder = this.folder;
    const [controller, node] = await freePorts();
    const settings = {
      ClusterName: "test",
      SlurmctldHost: `${hostname()}(127.0.0.1)`,
      SlurmUser: "root",
      AuthInfo: `socket=${join(folder, "socket")}`,
      SlurmctldPort: controller,
      SlurmdPort: node,
      SlurmctldPidFile: join(folder, "slurmctld.pid"),
      SlurmdPidFile: join(folder, "slurmd.pid"),
      SlurmctldLogFile: join(folder, "slurmctld.log"),
      SlurmdLogFile: join(folder, "slurmd.log"),
      StateSaveLocation: join(folder, "state"),
      SlurmdSpoolDir: join(folder, "spool"),
      ProctrackType: "proctrack/linuxproc",
      TaskPlugin: "task/none",
      SelectType: "select/cons_tres",
      SelectTypeParameters: "CR_Core_Memory",
      MpiDefault: "none",
      GresTypes: "gpu",
      ReturnToService: 2,
      KillWait: 2,
      MinJobAge: 10,
      // More CPUs than the machine has.
      SlurmdParameters: "config_overrides",
      SchedulerParameters: "sched_interval=1,batch_sched_delay=0",
    };
    const lines = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
    const machine = `NodeName=${hostname()} NodeAddr=127.0.0.1 CPUs=8 RealMemory=8000 Gres=gpu:h100:${GPUS}`;
    return [...lines, machine, "PartitionName=main Nodes=ALL Default=YES State=UP", ""].join("\n");
  }
}

async function freePorts(): Promise<[number, number]> {
  const servers = [createServer(), createServer()];
  for (const server of servers) await once(server.listen(0, "127.0.0.1"), "listening");
  const [first, second] = servers.map((server) => (server.address() as AddressInfo).port);
  for (const server of servers) server.close();
  return [first ?? 0, second ?? 0];
}
