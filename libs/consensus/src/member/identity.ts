import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { open, readdir, readFile, rename } from "node:fs/promises";
import { dirname, join } from "node:path";
import { AppError } from "@heddle/base/errors";
import { NO_SECRET_KEYS, type SecretKeys, sealedTextBy } from "@heddle/base/secret-keys";
import { UnsupportedVersionError } from "@heddle/base/unsupported-version";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import type { Member } from "../ports.ts";
import { newMemberKey } from "./member-key.ts";

/** Who the owner of a data directory is in its group. */
export interface Identity {
  readonly version: 1;
  readonly name: string;
  /** The public key, drawn with the directory: a wiped directory gets another one. */
  readonly nonce: string;
  /** The private key, encrypted in the file where there is a secrets key; old directories have none. */
  readonly key?: string | undefined;
  /** Both absent until the group is found or formed. */
  readonly cluster?: string | undefined;
  readonly id?: number | undefined;
  /** Number of starts of this member; distinguishes its processes. */
  readonly incarnation: number;
  /** The cluster version, once it was raised: a build that does not support it must not start. */
  readonly clusterVersion?: number | undefined;
  /** The key that encrypts the log, and whether no file holds anything from before it any more. */
  readonly secrets?: { readonly key: string; readonly isClean: boolean } | undefined;
  /** Until the log has its first content: how it comes to it. */
  readonly beginning?: Beginning | undefined;
}

/** A group's first member makes the first content itself; a later one gets it from the others. */
export interface Beginning {
  readonly kind: "first" | "joining";
  /** The group's first members, for one of them; else the members that the group had. */
  readonly members: readonly Member[];
}

/** An identity that has found its group. */
export type FullIdentity = Identity & { readonly cluster: string; readonly id: number };

/** Whether the owner of a master's data directory is a member of a group; nothing is decrypted. */
export function hasGroup(dataDirectory: string): boolean {
  const file = identityPath(join(dataDirectory, "control"));
  if (!existsSync(file)) return false;
  try {
    return (JSON.parse(readFileSync(file, "utf8")) as Partial<Identity>).cluster !== undefined;
  } catch {
    return true; // Damaged: the master itself says what to do.
  }
}

export function isJoined(identity: Identity): identity is FullIdentity {
  return identity.cluster !== undefined && identity.id !== undefined;
}

interface StartOptions {
  readonly keys?: SecretKeys | undefined;
  /** The highest cluster version that this build supports. */
  readonly newestVersion: number;
}

/**
 * Reads the directory's identity and counts this start; a new directory gets a nonce.
 * Rejects, and writes nothing, where the directory:
 * - belongs to another master,
 * - has lost its identity,
 * - is encrypted with a key that is not given.
 */
export async function startIdentity(
  directory: string,
  name: string,
  { keys = NO_SECRET_KEYS, newestVersion }: StartOptions,
): Promise<Identity> {
  const known = await readIdentity(directory, keys);
  if (known && known.name !== name) {
    const message = `${directory} belongs to the master ${known.name}, not to ${name}. Give --name ${known.name}, or another --data.`;
    throw new AppError("conflict", message);
  }
  if (known?.clusterVersion !== undefined && known.clusterVersion > newestVersion) {
    const { clusterVersion } = known;
    throw new UnsupportedVersionError(directory, clusterVersion, newestVersion);
  }
  keys.checkHolds(known?.secrets?.key, directory);
  if (!known || !isJoined(known)) await checkHoldsNoLog(directory);
  const incarnation = (known?.incarnation ?? 0) + 1;
  const identity: Identity = { version: 1, ...(known ?? newMemberKey()), name, incarnation };
  await writeIdentity(directory, identity, keys);
  return identity;
}

/** Rejects for a log or snapshots, of which a directory without a full identity has none. */
export async function checkHoldsNoLog(directory: string): Promise<void> {
  for (const [part, end] of [
    ["wal", ".log"],
    ["snapshots", ".snap"],
  ] as const) {
    const names = await readdir(join(directory, part)).catch(noneIfMissing);
    if (!names.some((name) => name.endsWith(end))) continue;
    const message = `${directory} has a log or snapshots, but its identity.json is gone or another's: it is unknown which member they belong to. Restore that file, or empty the directory, and this master joins its group again.`;
    throw new AppError("server_error", message);
  }
}

function noneIfMissing(error: NodeJS.ErrnoException): string[] {
  if (error.code === "ENOENT") return [];
  throw error;
}

/** Resolves when the identity is on the disk in place of the one before. */
export async function writeIdentity(
  directory: string,
  { key, ...rest }: Identity,
  keys: SecretKeys,
): Promise<void> {
  const path = identityPath(directory);
  const sealed = key === undefined ? {} : { key: keys.sealText(key, KEY_PURPOSE).trim() };
  const identity = { ...rest, ...sealed };
  const file = await open(`${path}.tmp`, "w", 0o600);
  try {
    await file.writeFile(`${JSON.stringify({ ...identity, sha256: checksum(identity) })}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(`${path}.tmp`, path);
  await nodeStorageFiles.syncDirectory(dirname(path));
}

/**
 * The directory's identity as it is; undefined where there is none. Rejects with `precondition_failed` where
 * the secrets key of its private key is not here.
 */
export async function readIdentity(
  directory: string,
  keys: SecretKeys,
): Promise<Identity | undefined> {
  const path = identityPath(directory);
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
  const identity = parseIdentity(text);
  if (identity?.key !== undefined) {
    keys.checkHolds(sealedTextBy(identity.key), directory);
    return { ...identity, key: keys.openText(identity.key, KEY_PURPOSE) };
  }
  if (identity) return identity;
  const message = `${path} is damaged: its content does not match its checksum, or it is not an identity. Restore that file, or empty the directory and start again, and this master joins its group again.`;
  throw new AppError("server_error", message);
}

/** Undefined for a text that was changed; files of earlier versions have no checksum. */
function parseIdentity(text: string): Identity | undefined {
  let known: Identity & { readonly sha256?: unknown };
  try {
    known = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof known !== "object" || known === null) return undefined;
  const { sha256, ...identity } = known;
  // A flipped bit in a field's name would else make the field absent, the checksum's too.
  const isWhole = Object.keys(identity).every((field) => FIELDS.has(field));
  const hasParts = typeof identity.name === "string" && typeof identity.nonce === "string";
  if (!isWhole || !hasParts || identity.version !== 1) return undefined;
  return sha256 === undefined || sha256 === checksum(identity) ? identity : undefined;
}

/** The checksum of the identity, with its fields in the order of the file. */
function checksum(identity: Identity): string {
  return createHash("sha256").update(JSON.stringify(identity)).digest("hex");
}

const KEY_PURPOSE = "member key";

const FIELDS: ReadonlySet<string> = new Set<keyof Identity>([
  ...(["version", "name", "nonce", "key", "cluster", "id", "incarnation"] as const),
  ...(["clusterVersion", "secrets", "beginning"] as const),
]);

function identityPath(directory: string): string {
  return join(directory, "identity.json");
}
