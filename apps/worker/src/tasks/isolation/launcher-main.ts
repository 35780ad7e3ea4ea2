import { accessSync, constants, readFileSync, statSync, writeFileSync, writeSync } from "node:fs";
import { resolve } from "node:path";
import { restrictByLandlock } from "./landlock.ts";
import { type Confinement, LAUNCHER_READY, type LaunchOrders, ORDERS_FD } from "./launch-orders.ts";
import { dropCapabilities, execute, forbidNewPrivileges } from "./libc.ts";
import { restrictMounts } from "./own-mounts.ts";
import { refuseLimitsOfOthers } from "./system-call-filter.ts";
import { enterView } from "./task-view.ts";

// The process that becomes a task's program. It starts with the worker's rights and a clean environment,
// gives the rights up, and then executes the program. It must not touch process.stdin, stdout or stderr:
// Node would make the task's pipes non-blocking.

const CANNOT_EXECUTE = 126;

try {
  const orders = JSON.parse(readFileSync(ORDERS_FD, "utf8")) as LaunchOrders;
  if (orders.cgroup !== "") writeFileSync(orders.cgroup, String(process.pid));
  confine(orders.confinement);
  const program = enter(orders);
  writeSync(ORDERS_FD, `${LAUNCHER_READY}\n`);
  execute(program, orders.command, orders.environment);
} catch (error) {
  const message = error instanceof Error ? error.message : String(error);
  try {
    writeSync(ORDERS_FD, `${message}\n`);
  } catch {
    // The worker is gone; its successor reads the exit status.
  }
  process.exit(CANNOT_EXECUTE);
}

function confine(how: Confinement): void {
  if (how.kind === "none") return;
  if (how.kind === "user") {
    if (how.view) enterView(how.view);
    dropCapabilities();
    process.setgroups?.([]);
    process.setgid?.(how.gid);
    process.setuid?.(how.uid);
    if (process.getuid?.() !== how.uid)
      throw new Error(`the user could not be changed to ${how.uid}`);
    forbidNewPrivileges();
    return;
  }
  if (how.hasOwnMounts) restrictMounts(how);
  dropCapabilities();
  forbidNewPrivileges();
  restrictByLandlock(how);
  refuseLimitsOfOthers();
}

/** Goes to the working directory and finds the program, both with the task's rights. */
function enter({ command, environment, workingDirectory }: LaunchOrders): string {
  const user = `the task's user (uid ${process.getuid?.()})`;
  try {
    process.chdir(workingDirectory);
  } catch (cause) {
    const advice = "or leave `working_directory` out for an empty one";
    const { code } = cause as NodeJS.ErrnoException;
    if (code === "ENOENT")
      throw new Error(
        `the working directory ${workingDirectory} does not exist on this worker: create it there, ${advice}`,
      );
    if (code === "ENOTDIR")
      throw new Error(`the working directory ${workingDirectory} is not a directory`);
    throw new Error(
      `${user} cannot enter the working directory ${workingDirectory} (${code}): put it where that user may go, ${advice}`,
    );
  }
  const [name = ""] = command;
  if (name === "") throw new Error("the job names no program: give a `command`");
  const path = environment["PATH"] ?? "";
  const isPath = name.includes("/");
  const places = isPath ? [resolve(name)] : path.split(":").map((each) => resolve(each, name));
  const program = places.find(mayRun);
  if (program !== undefined) return program;
  const where = isPath ? `at ${places[0]}` : `in the folders of PATH (${path})`;
  throw new Error(
    `there is no program ${JSON.stringify(name)} that ${user} may run ${where} on this worker: install it there, name it by its full path, or give a \`container_image\` that has it`,
  );
}

function mayRun(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
