import { closeSync, mkdirSync, openSync, statSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import type { TaskView } from "./launch-orders.ts";
import {
  CLONE_NEWNS,
  MS_BIND,
  MS_NODEV,
  MS_NOEXEC,
  MS_NOSUID,
  MS_RDONLY,
  MS_REC,
  MS_REMOUNT,
  MS_SLAVE,
  mount,
  unshare,
} from "./libc.ts";

const O_PATH = 0o10000000;
/** The size of what covers a directory: it holds names only. */
export const COVER_BYTES = 1024 * 1024;

/**
 * Gives this process its own mounts: covered directories are empty but for what is shown, and /proc has
 * its own user's processes alone. Needs CAP_SYS_ADMIN; throws where the kernel does not permit it.
 */
export function enterView({ covered, shown }: TaskView): void {
  unshare(CLONE_NEWNS);
  mount("none", "/", null, MS_REC | MS_SLAVE, null);
  const sources = shown.map(({ path }) => ({
    fd: openSync(path, O_PATH),
    isFolder: isFolder(path),
  }));
  for (const path of covered) {
    const options = `mode=0755,size=${COVER_BYTES}`;
    mount("heddle-task", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options);
  }
  shown.forEach(({ path, isReadOnly }, at) => {
    const { fd = -1, isFolder = true } = sources[at] ?? {};
    if (isFolder) mkdirSync(path, { recursive: true, mode: 0o755 });
    else {
      mkdirSync(dirname(path), { recursive: true, mode: 0o755 });
      writeFileSync(path, "", { flag: "a" });
    }
    mount(`/proc/self/fd/${fd}`, path, null, MS_BIND | MS_REC, null);
    closeSync(fd);
    if (isReadOnly) mount("none", path, null, MS_BIND | MS_REMOUNT | MS_RDONLY, null);
  });
  const secure = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  mount("proc", "/proc", "proc", secure, "hidepid=invisible");
}

function isFolder(path: string): boolean {
  return statSync(path).isDirectory();
}
