import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  lchownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  type Stats,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { AppError } from "@heddle/base/errors";
import { ownHeddleFolders, registeredSecretPaths } from "@heddle/base/secret-paths";
import type { UserRange } from "@heddle/node-agent/offer-flags";
import type { TaskLaunch } from "../executors/executor.ts";
import { freshScan } from "../executors/process-scan.ts";
import { GuardedModes } from "./guarded-modes.ts";
import type { Confinement } from "./launch-orders.ts";
import { giveOrders, launcherFor } from "./start-launcher.ts";
import { codePaths, letPass, realPath, viewFor } from "./task-paths.ts";
import { defaultRange, TaskUsers } from "./task-users.ts";

/** How tasks are kept from what is not theirs, the strongest first. */
const LEVELS = [
  "own user, mounts and processes",
  "own user",
  "Landlock and own mounts",
  "Landlock",
  "none",
] as const;
export type IsolationLevel = (typeof LEVELS)[number];

export interface IsolationOptions {
  readonly dataDirectory: string;
  readonly checkpointRoot: string;
  /** `own`: the worker's own user. Absent: the default range where the worker may switch users. */
  readonly taskUsers?: UserRange | "own" | undefined;
  /** Further paths of which tasks of the worker's own user read nothing. */
  readonly hidden?: readonly string[] | undefined;
  /** Further paths to which they write. */
  readonly writable?: readonly string[] | undefined;
  /** Called with what an operator should know while tasks run. */
  readonly onFault: (message: string) => void;
  /** Folders of the operator's whose code tasks load, as plugins. */
  readonly programs: readonly string[];
}

/** Where every program may keep what is not to stay, and the devices. */
const temporaryFolders = ["/tmp", "/var/tmp", "/run/lock", "/dev"];
const PROBE_TIMEOUT_MS = 60_000;
const ROOT_REASON =
  "Landlock: it does not hold a task of root, which reads disks through their devices and reaches root's services; run the worker as another user";
const extension = import.meta.url.slice(import.meta.url.lastIndexOf("."));
const probe = fileURLToPath(new URL(`./probe-main${extension}`, import.meta.url));
/** CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_KILL, CAP_SETGID and CAP_SETUID. */
const switchCapabilities = [0n, 1n, 3n, 5n, 6n, 7n];

/** What a task that begins is given by its isolation. */
export interface Isolated {
  readonly confinement: Confinement;
  readonly environment: Readonly<Record<string, string>>;
  /** The user of this job's tasks alone; undefined where the worker cannot switch. */
  readonly user: number | undefined;
  /** To be called when nothing of the task runs any more. */
  release(): void;
}

/** What of a launch the isolation depends on. */
type IsolatedLaunch = Pick<TaskLaunch, "jobId" | "environment" | "mounts" | "checkpointDirectory">;

/** How this worker isolates its tasks. The level is that of a trial at the worker's start. */
export class Isolation {
  readonly level: IsolationLevel;
  /** Why no stronger level is there. */
  readonly reasons: readonly string[];
  readonly #options: IsolationOptions;
  readonly #users: TaskUsers | undefined;
  readonly #modes = new GuardedModes((message) => this.#options.onFault(message));

  private constructor(
    level: IsolationLevel,
    reasons: readonly string[],
    options: IsolationOptions,
    users: TaskUsers | undefined,
  ) {
    this.level = level;
    this.reasons = reasons;
    this.#options = options;
    this.#users = users;
  }

  /** Tries the levels, the strongest first, with a program that looks for what it must not read. */
  static async find(options: IsolationOptions): Promise<Isolation> {
    const range = usersOf(options);
    const own = range && new TaskUsers(range, options.checkpointRoot);
    const reasons: string[] = [];
    for (const level of LEVELS) {
      const users = isOwnUser(level) ? own : undefined;
      if (isOwnUser(level) && !users) {
        if (reasons.length === 0) reasons.push(noUsersReason(options));
        continue;
      }
      if (isLandlock(level) && process.getuid?.() === 0) {
        if (!reasons.includes(ROOT_REASON)) reasons.push(ROOT_REASON);
        continue;
      }
      const found = new Isolation(level, reasons, options, users);
      if (level === "none") return found;
      try {
        await found.#try();
        return found;
      } catch (error) {
        reasons.push(`${level}: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
    throw new Error("the last level needs no trial");
  }

  /** Temporary folders in which a task makes no files, since hidden paths lie below them. */
  get closedFolders(): string[] {
    if (this.level !== "Landlock") return [];
    const data = realPath(this.#options.dataDirectory);
    return temporaryFolders.filter((folder) => data.startsWith(`${realPath(folder)}/`));
  }

  onModuleDestroy(): void {
    this.#modes.stop();
  }

  /** Where sockets of tasks may lie so that no other job reaches them, the preferred place first. */
  get socketRoots(): string[] {
    if (!isLandlock(this.level)) return [tmpdir()];
    // Hidden from all tasks, unlike temporary folders, to which every task of this user writes.
    const folders = [this.#options.dataDirectory, ...ownHeddleFolders()];
    return folders.map((folder) => join(realPath(folder), "sockets"));
  }

  /** Gives the task what is its own, and says how the launcher is to confine it. */
  async prepare(launch: IsolatedLaunch): Promise<Isolated> {
    const { environment, mounts } = launch;
    if (!this.#users) {
      const confinement = this.#sameUser(launch);
      return { confinement, environment, user: undefined, release() {} };
    }
    const id = await acquireUser(this.#users, launch);
    const release = () => this.#users?.release(launch.jobId);
    try {
      for (const { path } of mounts) giveTo(id, path);
      const confinement = { kind: "user", uid: id, gid: id, view: this.#view(launch, id) } as const;
      const user = this.#users.isExclusive ? id : undefined;
      return { confinement, environment: withOwnHome(environment, mounts), user, release };
    } catch (error) {
      release();
      throw error;
    }
  }

  /** A task that an earlier process of this worker prepared. */
  async adopt(launch: IsolatedLaunch): Promise<Pick<Isolated, "user" | "release">> {
    const id = this.#users && (await acquireUser(this.#users, launch));
    const user = this.#users?.isExclusive ? id : undefined;
    return { user, release: () => this.#users?.release(launch.jobId) };
  }

  #view({ mounts }: IsolatedLaunch, id: number) {
    const { dataDirectory, checkpointRoot, programs } = this.#options;
    if (this.level === "own user, mounts and processes") {
      const code = codePaths(programs).map((path) => ({ path, isReadOnly: true }));
      return viewFor([...mounts, ...code], id);
    }
    for (const { path } of mounts) {
      letPass(dataDirectory, join(path, ".."));
      letPass(checkpointRoot, join(path, ".."));
    }
    return undefined;
  }

  #sameUser({ mounts }: IsolatedLaunch): Confinement {
    if (this.level === "none") return { kind: "none" };
    const { dataDirectory, checkpointRoot, programs } = this.#options;
    const { hidden = [], writable = [] } = this.#options;
    const data = process.env["HEDDLE_DATA"];
    const own = [dataDirectory, checkpointRoot, ...hidden, ...(data ? [data] : [])];
    // Other processes of this user may have begun since the last launch.
    const secret = [...own, ...ownHeddleFolders(), ...registeredSecretPaths()];
    const hiddenPaths = [...new Set(secret.map(realPath))];
    if (this.level === "Landlock") this.#modes.add(hiddenPaths);
    // A rule is of a file that exists: the task may not make one in its directory.
    for (const { path } of mounts) makeIfMissing(path);
    return {
      kind: "landlock",
      hasOwnMounts: this.level === "Landlock and own mounts",
      hidden: hiddenPaths,
      readable: [
        ...codePaths(programs),
        ...mounts.filter(({ isReadOnly }) => isReadOnly).map(({ path }) => path),
      ].map(realPath),
      writable: [
        ...mounts.filter(({ isReadOnly }) => !isReadOnly).map(({ path }) => path),
        ...temporaryFolders,
        ...writable,
      ].map(realPath),
    };
  }

  /** Throws where a program that is isolated so cannot work, or reads what it must not. */
  async #try(): Promise<void> {
    const root = join(this.#options.dataDirectory, "jobs");
    mkdirSync(root, { recursive: true, mode: 0o700 });
    const folder = mkdtempSync(join(root, ".probe-"));
    const [work, secret] = [join(folder, "work"), join(folder, "secret")];
    try {
      mkdirSync(work, { mode: 0o700 });
      writeFileSync(secret, "secret", { mode: 0o600 });
      const isolated = await this.prepare({
        environment: {},
        mounts: [{ path: work, isReadOnly: false }],
        jobId: "probe",
        checkpointDirectory: work,
      });
      const result = join(work, "result");
      const command = [process.execPath, probe, result, String(process.pid), secret];
      await runProbe(isolated, command, work).finally(() => isolated.release());
      const { read, changed } = JSON.parse(readFileSync(result, "utf8")) as Record<
        string,
        string[]
      >;
      if (read?.length) throw new Error(`a task could read ${read.join(", ")}`);
      if (changed?.length && this.level !== "Landlock")
        throw new Error(`a task could change the mode of ${changed.join(", ")}`);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }
}

/** The choice holds the lock of all workers of this machine, so the scan is made before it. */
async function acquireUser(
  users: TaskUsers,
  { jobId, checkpointDirectory }: IsolatedLaunch,
): Promise<number> {
  const scan = users.isToChoose(jobId) ? await freshScan() : undefined;
  return users.acquire(jobId, checkpointDirectory, scan);
}

function isLandlock(level: IsolationLevel): boolean {
  return level.startsWith("Landlock");
}

function isOwnUser(level: IsolationLevel): boolean {
  return level.startsWith("own user");
}

/** Undefined where the tasks run as the worker's user. Throws where users are asked for that cannot be had. */
function usersOf({ taskUsers }: IsolationOptions): UserRange | undefined {
  if (taskUsers === "own") return undefined;
  if (maySwitch()) return taskUsers ?? defaultRange();
  if (taskUsers === undefined) return undefined;
  const message =
    "--task-users needs a worker that may switch users: run it as root, or with the capabilities CAP_SETUID, CAP_SETGID, CAP_CHOWN, CAP_FOWNER, CAP_DAC_OVERRIDE and CAP_KILL";
  throw new AppError("invalid_value", message);
}

function noUsersReason({ taskUsers }: IsolationOptions): string {
  return taskUsers === "own"
    ? "own user: switched off by --task-users own"
    : "own user: this worker may not switch users (it runs neither as root nor with CAP_SETUID)";
}

function maySwitch(): boolean {
  try {
    const status = readFileSync("/proc/self/status", "utf8");
    const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? "0"}`);
    return switchCapabilities.every((each) => (effective >> each) & 1n);
  } catch {
    return false; // No Linux.
  }
}

/** The worker's home and name are another user's. */
function withOwnHome(
  environment: TaskLaunch["environment"],
  mounts: TaskLaunch["mounts"],
): Record<string, string> {
  const { HOME, USER, ...others } = environment;
  const home = HOME === process.env["HOME"] ? mounts[0]?.path : HOME;
  const user = USER === process.env["USER"] ? undefined : USER;
  return { ...others, ...(home && { HOME: home }), ...(user && { USER: user }) };
}

/** Makes an empty file where nothing is; otherwise returns what is there. */
function makeIfMissing(path: string): Stats | undefined {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (!stat) writeFileSync(path, "", { flag: "ax", mode: 0o600 });
  return stat;
}

/** The folders are this worker's own until now, so that nothing in them can be exchanged meanwhile. */
function giveTo(id: number, path: string): void {
  const stat = makeIfMissing(path);
  const isOurs = stat === undefined || stat.uid === process.getuid?.();
  // A folder of a job from before tasks had users of their own.
  if (isOurs && stat?.isDirectory()) {
    for (const each of readdirSync(path, { recursive: true, withFileTypes: true })) {
      lchownSync(join(each.parentPath, each.name), id, id);
    }
  }
  if (stat?.uid !== id || stat.gid !== id) lchownSync(path, id, id);
}

async function runProbe(
  isolated: Isolated,
  command: readonly string[],
  work: string,
): Promise<void> {
  const [program = "", ...args] = launcherFor(isolated.confinement);
  const child = spawn(program, args, {
    cwd: "/",
    env: {},
    stdio: ["ignore", "ignore", "pipe", "ignore", "ignore", "pipe"],
    timeout: PROBE_TIMEOUT_MS,
    killSignal: "SIGKILL",
  });
  let said = "";
  child.stderr?.on("data", (piece: Buffer) => {
    said = `${said}${piece.toString("utf8")}`.slice(-2_000);
  });
  const ended = once(child, "close") as Promise<[number | null, string | null]>;
  const orders = {
    command,
    environment: isolated.environment,
    workingDirectory: work,
    cgroup: "",
    confinement: isolated.confinement,
  };
  const lastLine = () => said.trim().split("\n").at(-1);
  await giveOrders(child, orders).catch(async (error: Error) => {
    await ended;
    throw new Error(lastLine() || error.message);
  });
  const [code] = await ended;
  if (code !== 0) throw new Error(`a program could not run: ${lastLine() || code}`);
}
