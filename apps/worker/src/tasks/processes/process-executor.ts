import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { keyOf } from "../../records/task-plan.ts";
import {
  type Executor,
  LaunchError,
  type TaskHandle,
  type TaskLaunch,
} from "../executors/executor.ts";
import { OutputCopier, OutputPipes } from "../executors/output-copier.ts";
import { inOwnTurn } from "../executors/own-turn.ts";
import { freshScan } from "../executors/process-scan.ts";
import {
  killAllButLeader,
  MARK_VARIABLE,
  markOf,
  type ProcessRecord,
  readProcess,
  USER_VARIABLE,
} from "../executors/process-tree.ts";
import type { Isolated, Isolation } from "../isolation/isolation.ts";
import type { LaunchOrders } from "../isolation/launch-orders.ts";
import { giveOrders, launcherFor, SUBREAPER } from "../isolation/start-launcher.ts";
import type { CgroupBranch } from "./cgroup.ts";
import { ProcessTask, shellMessagesFile } from "./process-task.ts";

/**
 * The most rounds, of about 10 ms each. A child that remains, as in an uninterruptible read, is
 * left behind.
 */
const MAX_SWEEP_ROUNDS = 500;

/**
 * The shell between this worker and the launcher. It runs with the worker's rights and a clean
 * environment, sets limits, and keeps the exit status in a file for a restarted worker. It ignores
 * signals to its group; its messages about the program's end go to a file of their own. At the end it
 * kills its children: as a subreaper it has every process that the program left behind.
 */
const WRAPPER = [
  "status=$1 data=$2; shift 2",
  'ulimit -c 0; [ -z "$data" ] || ulimit -d "$data"',
  "trap : TERM INT HUP QUIT USR1 USR2",
  // As sh, bash prints nothing; in another shell this would end it.
  '[ -z "$BASH_VERSION" ] || ! (set +o posix) 2> /dev/null || set +o posix',
  'exec 4>&2 2>&3 3>&-; (exec "$@" 2>&4 4>&-)',
  'code=$?; echo $code > "$status.new" && mv "$status.new" "$status"',
  'exec 2> /dev/null; children="/proc/$$/task/$$/children" round=0',
  `while [ -r "$children" ] && [ $round -lt ${MAX_SWEEP_ROUNDS} ]; do`,
  '  left=; read -r left < "$children"; [ -n "$left" ] || break; kill -KILL $left',
  // A shell reaps children that it did not start while it waits for one that it did.
  "  sleep 0.01; round=$((round + 1))",
  "done; exit $code",
].join("\n");
/** The PATH of the wrapper and the launcher, which run with the worker's rights. */
const OWN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/**
 * Without a cgroup's memory bound, a process may allocate this much beyond the task's bound before
 * the system refuses. It is a backstop: the watch measures real use, and reports that memory ran
 * out. Runtimes such as Node's reserve far more than they use.
 */
const DATA_SLACK_BYTES = 4 * 2 ** 30;

/** The program of a task's process. */
interface TaskProgram {
  readonly command: readonly string[];
  /** Its standard input, which is closed after that; absent: it has none. */
  readonly input?: string | undefined;
}

/** Runs tasks as processes of this machine, isolated as far as the machine permits. */
export class ProcessExecutor implements Executor {
  readonly name = "process";
  readonly #nodeId: string;
  readonly #branch: CgroupBranch | undefined;
  readonly #isolation: Isolation;

  constructor(nodeId: string, branch: CgroupBranch | undefined, isolation: Isolation) {
    this.#nodeId = nodeId;
    this.#branch = branch;
    this.#isolation = isolation;
  }

  async prepare(): Promise<void> {}

  start(launch: TaskLaunch): Promise<TaskHandle> {
    return this.startProgram(launch, { command: launch.plan.spec.command });
  }

  /** Runs a program of the worker's own choice in the task's place. */
  async startProgram(launch: TaskLaunch, program: TaskProgram): Promise<TaskHandle> {
    const isolated = await this.#isolation.prepare(launch);
    try {
      const handle = await this.#startIsolated(launch, program, isolated);
      void handle.exited.finally(isolated.release);
      return handle;
    } catch (error) {
      isolated.release();
      throw error;
    }
  }

  async #startIsolated(
    launch: TaskLaunch,
    program: TaskProgram,
    { confinement, environment, user }: Isolated,
  ): Promise<ProcessTask> {
    const { plan, directory, workingDirectory } = launch;
    const mark = `${this.#nodeId}/${keyOf(plan.id)}`;
    const { memoryBytes, cpuMilli } = plan.spec;
    const leaf = this.#branch?.leaf(leafName(launch), { memoryBytes, cpuMilli });
    const isBound = this.#branch?.controllers.has("memory") ?? false;
    const dataKib = Math.ceil((memoryBytes * 2 + DATA_SLACK_BYTES) / 1024);
    const statusFile = join(directory, "exit-status");
    const args = [
      "-c",
      WRAPPER,
      "heddle-task",
      statusFile,
      isBound || memoryBytes === 0 ? "" : String(dataKib),
      ...launcherFor(confinement),
    ];
    const orders: LaunchOrders = {
      command: program.command,
      workingDirectory,
      confinement,
      cgroup: leaf?.entry ?? "",
      environment: { ...environment, [MARK_VARIABLE]: mark },
    };
    const wordsFile = shellMessagesFile(statusFile);
    // Nothing else finds a program of the worker's own user that has left its session and environment.
    const shell = user === undefined && !leaf ? [...SUBREAPER, "/bin/sh"] : ["/bin/sh"];
    const { child, copier } = await startWithOutput(launch, mark, (output) =>
      inOwnTurn(() =>
        spawnDetached([...shell, ...args], {
          mark,
          user,
          input: program.input,
          wordsFile,
          output,
        }),
      ),
    );
    const pid = child.pid as number;
    const record: ProcessRecord = { pid, startTime: readProcess(pid)?.startTime ?? 0 };
    const options = { record, mark, leaf, statusFile, child, copier, user };
    const task = new ProcessTask({ ...options, memoryLimitBytes: memoryBytes });
    try {
      await giveOrders(child, orders);
    } catch (cause) {
      await task.kill();
      throw new LaunchError("LaunchFailed", (cause as Error).message, cause);
    }
    return task;
  }

  async adopt(launch: TaskLaunch, record: unknown): Promise<TaskHandle | undefined> {
    const mark = `${this.#nodeId}/${keyOf(launch.plan.id)}`;
    const { user, release } = await this.#isolation.adopt(launch);
    const task = new ProcessTask({
      record: checkedRecord(record, mark),
      mark,
      leaf: this.#branch?.find(leafName(launch)),
      statusFile: join(launch.directory, "exit-status"),
      memoryLimitBytes: launch.plan.spec.memoryBytes,
      child: undefined,
      user,
      copier: OutputCopier.find(launch, mark),
    });
    void task.exited.finally(release);
    return task;
  }

  async sweep(known: ReadonlySet<string>): Promise<number> {
    const prefix = `${this.#nodeId}/`;
    let count = 0;
    const isUnknown = (mark: string) =>
      mark.startsWith(prefix) && !known.has(mark.slice(prefix.length));
    const scan = await freshScan();
    for (const { leader, others } of scan.markedTasks(isUnknown)) {
      const pids = [...others, ...(leader ? [leader] : [])].map(({ pid }) => pid);
      count += killAllButLeader(leader?.pid, pids);
    }
    const leaves = new Set([...known].map((key) => key.replaceAll("/", ".")));
    for (const name of this.#branch?.leaves() ?? []) {
      if (leaves.has(name)) continue;
      const leaf = this.#branch?.find(name);
      count += leaf?.members().length ?? 0;
      leaf?.kill();
      leaf?.remove();
    }
    OutputCopier.sweep(scan, prefix, known);
    return count;
  }
}

/** No process at all: the rest of the task carries its mark, or is in its cgroup. */
const GONE: ProcessRecord = { pid: 0, startTime: 0 };

/**
 * A program of the same user can write the record too. So the recorded process is the task's only
 * if its start time matches and it carries the task's mark; others are never watched or killed.
 */
function checkedRecord(record: unknown, mark: string): ProcessRecord {
  const { pid, startTime } = (record ?? {}) as Partial<ProcessRecord>;
  if (!Number.isSafeInteger(pid) || pid === undefined || pid <= 1) return GONE;
  const entry = readProcess(pid);
  // It has ended, and its group may still exist.
  if (!entry) return { pid, startTime: Number(startTime) };
  return entry.startTime === startTime && markOf(pid) === mark ? entry : GONE;
}

function leafName({ plan }: TaskLaunch): string {
  return keyOf(plan.id).replaceAll("/", ".");
}

/** The copier starts before the task, so that the task's pipes always have a reader. */
async function startWithOutput(
  launch: TaskLaunch,
  mark: string,
  start: (output: OutputPipes["writeEnds"]) => Promise<ChildProcess>,
): Promise<{ child: ChildProcess; copier: OutputCopier }> {
  const pipes = OutputPipes.open();
  try {
    const copier = await pipes.copyTo(launch, mark);
    return { child: await start(pipes.writeEnds), copier };
  } finally {
    pipes.close();
  }
}

/**
 * A session of its own, without a terminal or a lasting pipe to this worker, so that the task
 * outlives it.
 */
function spawnDetached(
  [program = "", ...args]: readonly string[],
  task: {
    readonly mark: string;
    readonly user: number | undefined;
    readonly input: string | undefined;
    readonly output: OutputPipes["writeEnds"];
    /** The file for messages of the wrapper's shell. */
    readonly wordsFile: string;
  },
): Promise<ChildProcess> {
  const words = openSync(task.wordsFile, "w", 0o600);
  const child = spawn(program, args, {
    cwd: "/",
    env: {
      PATH: OWN_PATH,
      [MARK_VARIABLE]: task.mark,
      ...(task.user !== undefined && { [USER_VARIABLE]: String(task.user) }),
    },
    detached: true,
    stdio: [task.input === undefined ? "ignore" : "pipe", ...task.output, words, "ignore", "pipe"],
  });
  closeSync(words);
  // The exit status reports a program that ends before it has read its input.
  child.stdin?.on("error", () => undefined);
  child.stdin?.end(task.input);
  return new Promise((fulfil, reject) => {
    child.once("spawn", () => fulfil(child));
    child.once("error", (cause) => {
      const message = `the system could not start the task: ${cause.message}`;
      reject(new LaunchError("LaunchFailed", message, cause));
    });
  });
}
