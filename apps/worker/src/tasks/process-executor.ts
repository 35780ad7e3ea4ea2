import { type ChildProcess, spawn } from "node:child_process";
import { accessSync, closeSync, constants, openSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import type { CgroupBranch } from "./cgroup.ts";
import { type Executor, LaunchError, type TaskHandle, type TaskLaunch } from "./executor.ts";
import { OutputCopier, OutputPipes } from "./output-copier.ts";
import { ProcessTask, wordsOf } from "./process-task.ts";
import {
  MARK_VARIABLE,
  markedProcesses,
  markOf,
  type ProcessRecord,
  readProcess,
  signalProcess,
} from "./process-tree.ts";
import { keyOf } from "./task-plan.ts";

/**
 * The few lines that stand between this worker and the program: they enter the cgroup, set the
 * limits that a process sets for itself, and keep the exit status in a file, so that a worker that
 * was restarted meanwhile still learns it. They outlive signals to the whole group: the traps are
 * the shell's own and are back at their defaults in the program. What the shell says of the program's
 * end, which it does of a signal and not of an exit code, goes to a file of its own.
 */
const WRAPPER = [
  'status=$1 cgroup=$2 data=$3; shift 3; [ -z "$cgroup" ] || echo $$ > "$cgroup" || exit 125',
  'ulimit -c 0; [ -z "$data" ] || ulimit -d "$data"',
  "trap : TERM INT HUP QUIT USR1 USR2",
  // As sh, bash says nothing; in another shell that would be its end.
  '[ -z "$BASH_VERSION" ] || ! (set +o posix) 2> /dev/null || set +o posix',
  'exec 4>&2 2>&3 3>&-; (exec "$@" 2>&4 4>&-)',
  'code=$?; echo $code > "$status.new" && mv "$status.new" "$status"; exit $code',
].join("\n");

/**
 * Where memory is not bounded by a cgroup, a process may allocate so much beyond the task's bound
 * before the system refuses. It is a backstop: the watch sees what is really used, and tells that
 * memory ran out; runtimes such as Node's reserve far more than they use.
 */
const dataSlackBytes = 4 * 2 ** 30;

/** What a task's process runs. */
interface TaskProgram {
  readonly command: readonly string[];
  /** What it reads from standard input, which is closed after that; absent: it has none. */
  readonly input?: string | undefined;
}

/** Runs tasks as processes of this machine, as the user that the worker is. */
export class ProcessExecutor implements Executor {
  readonly name = "process";
  readonly #nodeId: string;
  readonly #branch: CgroupBranch | undefined;

  constructor(nodeId: string, branch: CgroupBranch | undefined) {
    this.#nodeId = nodeId;
    this.#branch = branch;
  }

  async prepare(): Promise<void> {}

  start(launch: TaskLaunch): Promise<TaskHandle> {
    return this.startProgram(launch, { command: launch.plan.spec.command });
  }

  /** Runs a program of the worker's own choice in the task's place. */
  async startProgram(launch: TaskLaunch, program: TaskProgram): Promise<TaskHandle> {
    const { plan, directory, workingDirectory } = launch;
    const mark = `${this.#nodeId}/${keyOf(plan.id)}`;
    const environment = { ...launch.environment, [MARK_VARIABLE]: mark };
    checkDirectory(workingDirectory);
    checkProgram(program.command, launch.environment["PATH"] ?? "", workingDirectory);
    const { memoryBytes, cpuMilli } = plan.spec;
    const leaf = this.#branch?.leaf(leafName(launch), { memoryBytes, cpuMilli });
    const isBound = this.#branch?.controllers.has("memory") ?? false;
    const dataKib = Math.ceil((memoryBytes * 2 + dataSlackBytes) / 1024);
    const statusFile = join(directory, "exit-status");
    const args = [
      ...["-c", WRAPPER, "heddle-task", statusFile, leaf?.entry ?? ""],
      ...[isBound || memoryBytes === 0 ? "" : String(dataKib), ...program.command],
    ];
    const how = {
      workingDirectory,
      environment,
      input: program.input,
      wordsFile: wordsOf(statusFile),
    };
    const { child, copier } = await startWithOutput(launch, mark, (output) =>
      spawnDetached(args, { ...how, output }),
    );
    const pid = child.pid as number;
    const startTime = readProcess(pid)?.startTime ?? 0;
    const record: ProcessRecord = { pid, startTime };
    return new ProcessTask({
      record,
      mark,
      leaf,
      statusFile,
      memoryLimitBytes: memoryBytes,
      child,
      copier,
    });
  }

  async adopt(launch: TaskLaunch, record: unknown): Promise<TaskHandle | undefined> {
    const mark = `${this.#nodeId}/${keyOf(launch.plan.id)}`;
    return new ProcessTask({
      record: checkedRecord(record, mark),
      mark,
      leaf: this.#branch?.find(leafName(launch)),
      statusFile: join(launch.directory, "exit-status"),
      memoryLimitBytes: launch.plan.spec.memoryBytes,
      child: undefined,
      copier: OutputCopier.find(launch, mark),
    });
  }

  async sweep(known: ReadonlySet<string>): Promise<number> {
    const prefix = `${this.#nodeId}/`;
    let count = 0;
    for (const { pid, mark } of markedProcesses()) {
      if (!mark.startsWith(prefix) || known.has(mark.slice(prefix.length))) continue;
      if (signalProcess(pid, "SIGKILL")) count += 1;
    }
    const leaves = new Set([...known].map((key) => key.replaceAll("/", ".")));
    for (const name of this.#branch?.leaves() ?? []) {
      if (leaves.has(name)) continue;
      const leaf = this.#branch?.find(name);
      count += leaf?.members().length ?? 0;
      leaf?.kill();
      leaf?.remove();
    }
    OutputCopier.sweep(prefix, known);
    return count;
  }
}

/** No process at all: what is left of the task carries its mark, or is in its cgroup. */
const GONE: ProcessRecord = { pid: 0, startTime: 0 };

/**
 * A program of the same user can write the record too. So the process that it names is the task's only
 * where it began when the record says and carries the task's mark: nobody else's is watched or killed.
 */
function checkedRecord(record: unknown, mark: string): ProcessRecord {
  const { pid, startTime } = (record ?? {}) as Partial<ProcessRecord>;
  if (!Number.isSafeInteger(pid) || pid === undefined || pid <= 1) return GONE;
  const entry = readProcess(pid);
  // One that is gone has ended, and its group may still be there.
  if (!entry) return { pid, startTime: Number(startTime) };
  return entry.startTime === startTime && markOf(pid) === mark ? entry : GONE;
}

function leafName({ plan }: TaskLaunch): string {
  return keyOf(plan.id).replaceAll("/", ".");
}

/** What copies the output is there before the task is, so that no task ever writes to nobody. */
async function startWithOutput(
  launch: TaskLaunch,
  mark: string,
  start: (output: OutputPipes["writeEnds"]) => Promise<ChildProcess>,
): Promise<{ child: ChildProcess; copier: OutputCopier }> {
  const pipes = await OutputPipes.open(launch.directory);
  try {
    const copier = await pipes.copyTo(launch, mark);
    return { child: await start(pipes.writeEnds), copier };
  } finally {
    pipes.close();
  }
}

/**
 * A session of its own, without a terminal or a pipe to this worker that stays: its end is not the
 * task's.
 */
function spawnDetached(
  args: readonly string[],
  task: {
    readonly workingDirectory: string;
    readonly environment: Readonly<Record<string, string>>;
    readonly input: string | undefined;
    readonly output: OutputPipes["writeEnds"];
    /** Where the wrapper's shell says what it has to say. */
    readonly wordsFile: string;
  },
): Promise<ChildProcess> {
  const words = openSync(task.wordsFile, "w", 0o600);
  const child = spawn("/bin/sh", [...args], {
    cwd: task.workingDirectory,
    env: task.environment,
    detached: true,
    stdio: [task.input === undefined ? "ignore" : "pipe", ...task.output, words],
  });
  closeSync(words);
  // A program that ends before it has read its input is told by its exit status.
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

function checkDirectory(path: string): void {
  try {
    if (statSync(path).isDirectory()) return;
  } catch (cause) {
    const message = `the working directory ${path} does not exist on this worker: create it there, or leave \`working_directory\` out for an empty one`;
    throw new LaunchError("LaunchFailed", message, cause);
  }
  throw new LaunchError("LaunchFailed", `the working directory ${path} is no directory`);
}

function checkProgram(command: readonly string[], path: string, directory: string): void {
  const program = command[0];
  if (program === undefined || program === "") {
    throw new LaunchError("LaunchFailed", "the job names no program: give a `command`");
  }
  const candidates = program.includes("/")
    ? [resolve(directory, program)]
    : path.split(":").map((folder) => resolve(directory, folder, program));
  if (candidates.some(isProgram)) return;
  const where = program.includes("/") ? `at ${candidates[0]}` : `in the folders of PATH (${path})`;
  const message = `there is no program ${JSON.stringify(program)} that may be run ${where} on this worker: install it there, name it by its full path, or give a \`container_image\` that has it`;
  throw new LaunchError("LaunchFailed", message);
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
