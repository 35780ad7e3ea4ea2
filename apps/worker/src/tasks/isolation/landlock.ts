import { closeSync, lstatSync, openSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import type { LandlockConfinement } from "./launch-orders.ts";
import { checked } from "./libc.ts";
import { koffi } from "./load-koffi.ts";

const SYS_CREATE_RULESET = 444;
const SYS_ADD_RULE = 445;
const SYS_RESTRICT_SELF = 446;
const CREATE_RULESET_VERSION = 1;
const RULE_PATH_BENEATH = 1;
const SCOPE_SIGNAL = 2n;
const O_PATH = 0o10000000;

/** Rights of Landlock on files, by their bits. Listing a directory and running a program stay free. */
const WRITE_FILE = 1n << 1n;
const READ_FILE = 1n << 2n;
const TRUNCATE = 1n << 14n;
const REFER = 1n << 13n;
/** Removing of files and directories; making of directories, files, sockets, pipes and links. */
const CHANGE_DIRECTORY = [4n, 5n, 7n, 8n, 9n, 10n, 12n].reduce((all, bit) => all | (1n << bit), 0n);
/** Making of devices, which no task may. */
const MAKE_DEVICE = (1n << 6n) | (1n << 11n);

/** Rules of one task: a directory with more entries on the way to a hidden path is refused. */
const MAX_RULES = 16_384;

const libc = koffi.load(null);
const createRuleset = libc.func("syscall", "long", ["long", "void *", "size_t", "uint32_t"]);
const addRule = libc.func("syscall", "long", ["long", "int", "int", "void *", "uint32_t"]);
const restrictSelf = libc.func("syscall", "long", ["long", "int", "uint32_t"]);

/** The version of Landlock's interface; 0 where the kernel has none. */
function landlockVersion(): number {
  return Math.max(0, Number(createRuleset(SYS_CREATE_RULESET, null, 0, CREATE_RULESET_VERSION)));
}

/**
 * Restricts this thread and what it becomes; throws where it cannot. It reads nothing below
 * `hidden`, writes only below `writable`, traces no process outside and, from version 6 on, signals
 * none.
 */
export function restrictByLandlock(paths: LandlockConfinement): void {
  const version = landlockVersion();
  if (version === 0) throw new Error("the kernel has no Landlock");
  const writing =
    WRITE_FILE | CHANGE_DIRECTORY | (version >= 2 ? REFER : 0n) | (version >= 3 ? TRUNCATE : 0n);
  const handled = READ_FILE | writing | MAKE_DEVICE;
  const scoped = version >= 6 ? SCOPE_SIGNAL : 0n;
  const attributes = Buffer.from(new BigUint64Array([handled, 0n, scoped]).buffer);
  const size = version >= 6 ? 24 : version >= 4 ? 16 : 8;
  const ruleset = checked(
    "landlock_create_ruleset",
    createRuleset(SYS_CREATE_RULESET, attributes, size, 0),
  );
  const read = ["/", ...paths.readable].flatMap((path) => allBut(path, paths.hidden));
  const covers = paths.hasOwnMounts ? paths.hidden.filter(isFolder) : [];
  // A covered file may be replaced outside, which takes its cover away.
  const uncovered = paths.hidden.filter(
    (path) => !covers.some((cover) => path === cover || path.startsWith(`${cover}/`)),
  );
  const write = paths.writable.flatMap((path) => allBut(path, uncovered));
  if (read.length + write.length > MAX_RULES) {
    throw new Error(
      `Landlock would need ${read.length + write.length} rules, more than ${MAX_RULES}`,
    );
  }
  for (const path of read) allow(ruleset, path, READ_FILE);
  for (const path of write) allow(ruleset, path, READ_FILE | writing);
  checked("landlock_restrict_self", restrictSelf(SYS_RESTRICT_SELF, ruleset, 0));
  closeSync(ruleset);
}

/** The path, or the entries beside the ways from it to hidden paths. A path below a hidden one stays. */
function allBut(path: string, hidden: readonly string[]): string[] {
  if (hidden.includes(path)) return [];
  const start = path === "/" ? "/" : `${path}/`;
  if (!hidden.some((each) => each.startsWith(start))) return [path];
  return entries(path)
    .map((name) => join(path, name))
    .filter((each) => !lstatSync(each, { throwIfNoEntry: false })?.isSymbolicLink())
    .flatMap((each) => allBut(each, hidden));
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

function entries(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return []; // The task could not list it either.
  }
}

function allow(ruleset: number, path: string, rights: bigint): void {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (!stat) return;
  const onFiles = READ_FILE | WRITE_FILE | TRUNCATE;
  const rule = Buffer.alloc(12);
  const folder = openOrUndefined(path);
  if (folder === undefined) return;
  try {
    rule.writeBigUInt64LE(stat.isDirectory() ? rights : rights & onFiles, 0);
    rule.writeInt32LE(folder, 8);
    checked(
      `landlock_add_rule for ${path}`,
      addRule(SYS_ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0),
    );
  } finally {
    closeSync(folder);
  }
}

/** Undefined of a path that this user cannot reach, nor would the task. */
function openOrUndefined(path: string): number | undefined {
  try {
    return openSync(path, O_PATH);
  } catch {
    return undefined;
  }
}
