import { createSecretKey, type KeyObject, randomBytes } from "node:crypto";
import { link, mkdir, open, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { createApiKey, hashApiKey, parseApiKey } from "@heddle/auth/api-key";
import { AppError } from "@heddle/base/errors";
import { readFlagFile, readFlagFileIfThere } from "@heddle/base/flag-file";
import type { ApiKeyRecord } from "@heddle/control/state";
import { authorityHash } from "@heddle/pki/certificate-authority";
import { parseJoinToken } from "@heddle/pki/join-token";
import { parseAuthority } from "@heddle/pki/tls-files";
import type { ControlPlane } from "../control-plane.ts";
import { propose, untilSettled } from "../propose.ts";
import type { RaftControlPlane } from "./raft-control-plane.ts";

const TOKEN_FLAG = "--cluster-token-file";
const KEY_FLAG = "--bootstrap-key-file";
const ENROLL_FLAG = "--enroll-key-file";
const WANTED = "a file, or the path of one that is to be made";

/**
 * The secret that keys are hashed with. The cluster keeps it, so that a key works on every master;
 * the first master to come proposes one.
 */
export async function clusterPepper(control: RaftControlPlane): Promise<KeyObject> {
  await keepFirst(control, "pepper", randomBytes(32).toString("hex"));
  const text = control.secret("pepper") ?? "";
  if (/^[0-9a-f]{64}$/.test(text)) return createSecretKey(text, "hex");
  throw new AppError("server_error", "The cluster's pepper is not 64 hexadecimal digits.");
}

/** Gives the cluster a secret unless it has one of that name. */
export async function keepFirst(
  control: Pick<RaftControlPlane, "secret" | "keepSecret"> & ControlPlane,
  name: string,
  value: string,
): Promise<void> {
  if (control.secret(name) !== undefined) return;
  await untilSettled(control, () => control.keepSecret(name, value));
}

/** The token that nodes attach with; made where the file is missing. */
export async function readOrCreateClusterToken(path: string): Promise<string> {
  const token = await readOrCreate(TOKEN_FLAG, path, () => randomBytes(32).toString("base64url"));
  if (token.length >= 16 && /^[\x21-\x7e]+$/.test(token)) return token;
  const message = `${path} must hold a token of at least 16 printable characters without spaces.`;
  throw new AppError("invalid_value", message);
}

/**
 * Registers the first admin key on a cluster that has none: the file's, which is made where it is
 * missing, or a new one. Returns the text of a new key that is in no file, to be shown once.
 */
export async function bootstrapAdminKey(
  control: ControlPlane,
  pepper: KeyObject,
  file: string | undefined,
): Promise<string | undefined> {
  if (control.state.keys.size > 0) return undefined;
  const create = (): string => createApiKey("live").text;
  const text = file === undefined ? create() : await readOrCreate(KEY_FLAG, file, create);
  const id = keyIdOf(text, file);
  const hash = hashApiKey(text, pepper);
  await register(control, { id, hash, name: "bootstrap administrator", scopes: ["*"] });
  return file === undefined ? text : undefined;
}

/** A key by which workers and parameter servers join. */
export interface EnrollKey {
  readonly id: string;
  readonly text: string;
}

/** The key in a file of `hdlj_HASH::KEY`; throws `invalid_value` for another cluster's. */
export function firstEnrollKey(path: string, authority: string): EnrollKey {
  const wanted =
    "the file that `heddle cluster enroll > FILE` or `heddle-operator create-files` wrote";
  const token = parseJoinToken(readFlagFile(ENROLL_FLAG, path, wanted));
  const { certificate } = parseAuthority(authority, "the --ca-file");
  if (token.authorityHash !== authorityHash(certificate)) {
    const message = `${ENROLL_FLAG} ${path} is for another certificate authority than this cluster's. Give ${wanted}.`;
    throw new AppError("invalid_value", message);
  }
  return { id: keyIdOf(token.secret, path), text: token.secret };
}

/** Registers the key unless the cluster has, or had, one of its id: a revoked key stays revoked. */
export async function registerEnrollKey(
  control: ControlPlane,
  pepper: KeyObject,
  { id, text }: EnrollKey,
): Promise<void> {
  if (control.state.keys.has(id)) return;
  const hash = hashApiKey(text, pepper);
  await register(control, { id, hash, name: "node enrolment", scopes: ["cluster:enroll"] });
}

/** Another master with the same file may be faster. */
async function register(control: ControlPlane, key: FirstKey): Promise<void> {
  try {
    await untilSettled(control, () => proposeKey(control, key));
  } catch (error) {
    if (control.state.keys.get(key.id)?.hash !== key.hash) throw error;
  }
}

/** Throws `invalid_value` for a file that is there and holds no API key; before the master takes part. */
export function checkBootstrapKey(file: string | undefined): void {
  const text = file && readFlagFileIfThere(KEY_FLAG, file, WANTED)?.trim();
  if (text !== undefined) keyIdOf(text, file);
}

function keyIdOf(text: string, file: string | undefined): string {
  const parsed = parseApiKey(text);
  if (parsed.ok) return parsed.id;
  const why = parsed.reason === "checksum" ? "its checksum does not match" : "its form is wrong";
  throw new AppError("invalid_value", `${file} holds no API key: ${why}. Remove it to make one.`);
}

type FirstKey = Pick<ApiKeyRecord, "id" | "hash" | "name" | "scopes">;

async function proposeKey(control: ControlPlane, key: FirstKey): Promise<void> {
  const atMs = Date.now();
  const record = { ...key, models: [], limits: {}, createdAtMs: atMs };
  await propose(control, { type: "key.create", atMs, key: record });
}

/** The trimmed text of a file that only its owner may read. */
async function readOrCreate(flag: string, path: string, create: () => string): Promise<string> {
  const known = readFlagFileIfThere(flag, path, WANTED)?.trim();
  if (known !== undefined) return known;
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const draft = `${path}.${process.pid}`;
  const file = await open(draft, "w", 0o600);
  try {
    await file.writeFile(`${create()}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  // A link is made whole or not at all; where several processes start at once, one of them wins.
  await link(draft, path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EEXIST") throw error;
  });
  await rm(draft);
  return readFlagFile(flag, path, WANTED).trim();
}
