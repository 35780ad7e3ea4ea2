import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";

/** The controllers that limit a task. */
const CONTROLLERS = ["memory", "cpu", "pids"] as const;
/** The period of `cpu.max`. */
const CPU_PERIOD_US = 100_000;
/** The most processes and threads of one task. */
const MAX_PROCESSES = 32_768;

/** The leaf of a worker that is alone in its cgroup. */
const WORKER_LEAF = "heddle-worker";
/** Empty branches of other workers: younger ones stay, as do those beyond the bound. */
const LEFT_AFTER_MS = 10 * 60_000;
const MAX_LEFT = 8_192;

export interface CgroupLimits {
  readonly memoryBytes: number;
  readonly cpuMilli: number;
}

/**
 * This worker's branch of the cgroup v2 tree, with a leaf for each task. Only delegated controllers
 * limit tasks; a leaf without any still identifies its members and kills them all at once.
 */
export class CgroupBranch {
  readonly #own: string;
  readonly path: string;
  /** The controllers of tasks' leaves. */
  readonly controllers: ReadonlySet<string>;

  private constructor(own: string, path: string, controllers: ReadonlySet<string>) {
    this.#own = own;
    this.path = path;
    this.controllers = controllers;
  }

  /** Undefined where the system has no cgroup v2 or does not let this worker use it. */
  static open(nodeId: string): CgroupBranch | undefined {
    const own = ownCgroup();
    if (own === undefined) return undefined;
    const path = join(own, `heddle-${nodeId}`);
    try {
      mkdirSync(path, { recursive: true });
      if (!existsSync(join(path, "cgroup.kill"))) return undefined; // Linux before 5.14.
      delegate(own, path);
      removeLeftBranches(own, path);
      return new CgroupBranch(own, path, words(join(path, "cgroup.subtree_control")));
    } catch {
      return undefined; // Not delegated: limits are enforced by other means.
    } finally {
      removeEmpty(path);
    }
  }

  /** The limits of tasks here, as text for the log. */
  static words(branch: CgroupBranch | undefined): Readonly<Record<string, string>> {
    const has = (controller: string) => branch?.controllers.has(controller) ?? false;
    return {
      cgroup: branch
        ? "a leaf of cgroup v2 for each task"
        : "none: no cgroup v2 may be changed here",
      memory: has("memory") ? "bounded by the system" : "watched twice a second",
      cpu: has("cpu") ? "bounded by the system" : "not bounded",
      processes: has("pids") ? "bounded by the system" : "not bounded",
    };
  }

  /** Makes the task's leaf; its first process must enter it by itself. */
  leaf(name: string, limits: CgroupLimits): Cgroup {
    const leaf = new Cgroup(join(this.path, name));
    // The branch was removed with its last leaf.
    if (mkdirSync(this.path, { recursive: true }) !== undefined) delegate(this.#own, this.path);
    mkdirSync(leaf.path, { recursive: true });
    const bound = (controller: string, file: string, value: string) => {
      if (this.controllers.has(controller)) writeFileSync(join(leaf.path, file), value);
    };
    if (limits.memoryBytes > 0) {
      bound("memory", "memory.max", String(limits.memoryBytes));
      bound("memory", "memory.oom.group", "1");
    }
    if (limits.cpuMilli > 0) {
      const quotaUs = Math.max(1_000, Math.round((limits.cpuMilli * CPU_PERIOD_US) / 1_000));
      bound("cpu", "cpu.max", `${quotaUs} ${CPU_PERIOD_US}`);
    }
    bound("pids", "pids.max", String(MAX_PROCESSES));
    return leaf;
  }

  /** The names of all leaves, also of earlier processes of this worker. */
  leaves(): string[] {
    return foldersIn(this.path);
  }

  /** The leaf that an earlier process of this worker made, if it still exists. */
  find(name: string): Cgroup | undefined {
    const path = join(this.path, name);
    return existsSync(path) ? new Cgroup(path) : undefined;
  }
}

/** One task's leaf. */
export class Cgroup {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  /** The file to which a process writes its id in order to enter. */
  get entry(): string {
    return join(this.path, "cgroup.procs");
  }

  members(): number[] {
    return [...words(this.entry)].map(Number);
  }

  /** Kills every member in one step, so that none can escape by a fork. */
  kill(): void {
    if (existsSync(this.path)) writeFileSync(join(this.path, "cgroup.kill"), "1");
  }

  /** Whether the system has killed a member for the leaf's memory bound. */
  ranOutOfMemory(): boolean {
    const kills = /^oom_kill (\d+)$/m.exec(text(join(this.path, "memory.events")))?.[1];
    return Number(kills ?? 0) > 0;
  }

  /** Succeeds once it is empty; the branch is removed with the last of its leaves. */
  remove(): boolean {
    const isGone = removeEmpty(this.path);
    if (isGone) removeEmpty(dirname(this.path));
    return isGone;
  }
}

/** The folder of this process's cgroup. */
function ownCgroup(): string | undefined {
  const mount = /^\S+ (\S+) cgroup2 /m.exec(text("/proc/mounts"))?.[1];
  const own = /^0::(\S+)$/m.exec(text("/proc/self/cgroup"))?.[1];
  return mount === undefined || own === undefined ? undefined : join(mount, own);
}

/**
 * Enables the controllers for the branch. A cgroup that does so may hold no process itself. So this
 * worker moves to its own leaf where it is alone in its cgroup, as under systemd's `Delegate`.
 */
function delegate(own: string, branch: string): void {
  const wanted = CONTROLLERS.filter((name) => words(join(own, "cgroup.controllers")).has(name));
  if (wanted.length === 0) return;
  const members = words(join(own, "cgroup.procs"));
  if (members.size === 1 && members.has(String(process.pid))) {
    const leaf = join(own, WORKER_LEAF);
    mkdirSync(leaf, { recursive: true });
    writeFileSync(join(leaf, "cgroup.procs"), String(process.pid));
  }
  for (const folder of [own, branch]) {
    for (const name of wanted) {
      try {
        writeFileSync(join(folder, "cgroup.subtree_control"), `+${name}`);
      } catch {
        // Not delegated; `controllers` shows which are.
      }
    }
  }
}

/**
 * Workers that were killed, and whose tasks have ended since, leave empty branches. A young one may
 * belong to a running worker whose task is about to enter.
 */
function removeLeftBranches(own: string, branch: string): void {
  for (const name of foldersIn(own)
    .filter((each) => each.startsWith("heddle-"))
    .slice(0, MAX_LEFT)) {
    const path = join(own, name);
    if (path === branch || name === WORKER_LEAF || isYoung(path)) continue;
    const leaves = foldersIn(path).map((leaf) => join(path, leaf));
    if (leaves.some(isYoung)) continue;
    // The system refuses to remove a leaf with members.
    if (leaves.every(removeEmpty)) removeEmpty(path);
  }
}

function isYoung(path: string): boolean {
  const { mtimeMs = Date.now() } = statSync(path, { throwIfNoEntry: false }) ?? {};
  return Date.now() - mtimeMs < LEFT_AFTER_MS;
}

function foldersIn(path: string): string[] {
  try {
    const entries = readdirSync(path, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  } catch {
    return []; // There is none.
  }
}

/** Whether it was removed. */
function removeEmpty(path: string): boolean {
  try {
    rmdirSync(path);
    return true;
  } catch {
    return !existsSync(path);
  }
}

function words(path: string): Set<string> {
  return new Set(text(path).split(/\s+/).filter(Boolean));
}

function text(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
