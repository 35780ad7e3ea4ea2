// npm starts a script through a shell. A signal to npm, or its death, ends neither the shell nor the
// script, so the script has to look.
import { spawnSync } from "node:child_process";
import { readFileSync, readlinkSync, realpathSync } from "node:fs";

const POLL_MS = { linux: 250, other: 2_000 };

const { ppid } = process;
/**
 * The shell between npm and this process. All this is read when the module is loaded, before the
 * script's own work: what has ended by then cannot be noticed any more.
 */
const shell = shellOfNpm();

/** Calls `onGone` once when the npm that runs this process is gone; never where none does. */
export function watchNpm(onGone) {
  if (!canLook()) return { stop: () => {} };
  const timer = setInterval(
    () => {
      const isThere =
        process.ppid === ppid && (shell === undefined || parentOf(shell.pid) === shell.parent);
      if (isThere) return;
      clearInterval(timer);
      onGone();
    },
    process.platform === "linux" ? POLL_MS.linux : POLL_MS.other,
  ).unref();
  return { stop: () => clearInterval(timer) };
}

function canLook() {
  return process.platform !== "win32" && process.env.npm_lifecycle_event !== undefined;
}

function shellOfNpm() {
  if (!canLook() || isNpm(ppid)) return undefined;
  return { pid: ppid, parent: parentOf(ppid) };
}

/** True where npm started this process without a shell between; npm runs on the Node that it names. */
function isNpm(pid) {
  const node = process.env.npm_node_execpath;
  if (node === undefined) return false;
  try {
    if (process.platform === "linux")
      return readlinkSync(`/proc/${pid}/exe`) === realpathSync(node);
    return ps("comm", pid).startsWith("npm");
  } catch {
    return false;
  }
}

/** The id of a process's parent; undefined where the process is gone. */
function parentOf(pid) {
  try {
    if (process.platform !== "linux") return Number(ps("ppid", pid)) || undefined;
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The program's name may have spaces and parentheses in it.
    return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
  } catch {
    return undefined;
  }
}

function ps(field, pid) {
  return spawnSync("ps", ["-o", `${field}=`, "-p", String(pid)], {
    encoding: "utf8",
  }).stdout.trim();
}
