import { chmodSync, existsSync, lstatSync, realpathSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { TaskView } from "./launch-orders.ts";

const own = fileURLToPath(import.meta.url);

/** What every task of this worker may read: Node and the installed code, which trainers run. */
export function codePaths(programs: readonly string[]): string[] {
  return [dirname(realpathSync(process.execPath)), codeRoot(), ...programs];
}

/** The folder of packages that this file is installed in, or the repository. */
function codeRoot(): string {
  const packages = own.indexOf("/node_modules/");
  if (packages >= 0) return own.slice(0, packages + "/node_modules".length);
  let folder = dirname(own);
  while (dirname(folder) !== folder && !existsSync(join(folder, "node_modules", "koffi")))
    folder = dirname(folder);
  return folder;
}

/** Resolves links in the part of the path that exists. */
export function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return dirname(path) === path
      ? path
      : join(realPath(dirname(path)), path.slice(dirname(path).length));
  }
}

/**
 * What a user's view must replace so that the user reaches the paths: the topmost directory on each
 * way that the user may not pass. Whatever else is below them the user could not reach anyway.
 */
export function viewFor(
  paths: readonly { readonly path: string; readonly isReadOnly: boolean }[],
  user: number,
): TaskView {
  const covered = new Set<string>();
  const shown: { path: string; isReadOnly: boolean }[] = [];
  for (const each of paths) {
    const barred = ancestors(each.path).find((folder) => !mayPass(folder, user));
    if (barred === undefined) continue;
    covered.add(barred);
    if (existsSync(each.path)) shown.push(each);
  }
  // What contains another path is mounted before it.
  shown.sort((a, b) => a.path.length - b.path.length);
  return { covered: [...covered], shown };
}

/** Lets every user pass the directories from `root` to the path; files in them keep their modes. */
export function letPass(root: string, path: string): void {
  for (const folder of ancestors(join(path, "x"))) {
    if (folder !== root && !folder.startsWith(`${root}/`)) continue;
    const stat = lstatSync(folder, { throwIfNoEntry: false });
    if (!stat?.isDirectory() || stat.uid !== process.getuid?.()) continue;
    if ((stat.mode & 0o111) !== 0o111) chmodSync(folder, (stat.mode & 0o7777) | 0o111);
  }
}

/** From the root directory down, without the path itself. */
function ancestors(path: string): string[] {
  const above = dirname(path);
  return above === path ? [] : [...ancestors(above), above];
}

/** Decided by the mode alone; the user is in no other group. */
function mayPass(folder: string, user: number): boolean {
  const stat = statSync(folder, { throwIfNoEntry: false });
  if (!stat) return true;
  const bit = stat.uid === user ? 0o100 : stat.gid === user ? 0o010 : 0o001;
  return (stat.mode & bit) !== 0;
}
