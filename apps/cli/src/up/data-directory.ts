import { randomBytes } from "node:crypto";
import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { createApiKey } from "@heddle/auth/api-key";
import { AppError } from "@heddle/base/errors";
import { isSameProcess, processStart } from "@heddle/base/process-alive";
import { replaceFileSync } from "@heddle/base/replace-file";
import type { SecretKeys } from "@heddle/base/secret-keys";
import { type Credentials, credentialsFile, readCredentials } from "../connection.ts";

/** The secrets of a local cluster, and whether this start created them. */
export interface ClusterSecrets {
  readonly apiKey: string;
  /** True at the first start only: then the key is shown. */
  readonly isNew: boolean;
  readonly bootstrapKeyFile: string;
  readonly clusterTokenFile: string;
}

/** The files with which the processes of a TLS cluster start. */
export interface TlsFiles {
  /** For masters: the authority that signs the nodes' certificates. */
  readonly authorityFile: string;
  /** The key by which workers and parameter servers get theirs. */
  readonly enrollKeyFile: string;
}

/** The process that has locked a data directory. */
export interface LockHolder {
  readonly pid: number;
  readonly address: string;
  /** The kernel's start time of that process, if available: process ids are reused. */
  readonly started: string | undefined;
}

/** A master that was started in the directory. */
interface MasterFiles {
  readonly name: string;
  readonly number: number;
  /** Absent if it has joined no group yet, or its identity is damaged. */
  readonly cluster: string | undefined;
}

/** Initial disk space of a master's log, and of its snapshots, logs and secrets. */
const MASTER_MIB = 64;
const SPARE_MIB = 16;

/**
 * The directory of a local cluster, readable by its owner only:
 *
 * - `credentials.json` for the CLI,
 * - `bootstrap-key`, `cluster-token` and `enroll-key` for its processes,
 * - `lock`, `logs/`, `models/` and one directory for each process.
 */
export class DataDirectory {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
    try {
      makeDirectories(path);
    } catch (error) {
      throw new AppError(
        "invalid_value",
        `The data directory ${path} cannot be created: ${(error as Error).message}. Give another with --data DIR.`,
      );
    }
  }

  /** A directory inside, which is created. */
  subdirectory(name: string): string {
    const path = join(this.path, name);
    makeDirectories(path);
    return path;
  }

  /**
   * Throws `conflict` if the directory holds masters that cannot run as one group:
   * - of several clusters, as after a forced recovery, since all would accept changes;
   * - more masters than requested, since those are still members of the group.
   */
  checkMasters(count: number): void {
    const masters = this.#masters();
    const clusters = Map.groupBy(
      masters.filter(({ cluster }) => cluster !== undefined),
      ({ cluster }) => cluster,
    );
    if (clusters.size > 1) throw this.#severalClusters([...clusters.values()]);
    const left = masters.filter(({ number }) => number > count).map(({ name }) => name);
    if (left.length === 0) return;
    const message = `${this.path} holds ${left.join(" and ")} too, more than --masters ${count}. Start with all of them, remove the extra ones (heddle cluster remove ${left[0]}), then delete their directories.`;
    throw new AppError("conflict", message);
  }

  /**
   * Throws if the disk is too full for the new masters: each allocates a log file at once, and
   * would otherwise fail in a loop.
   */
  checkRoom(masters: number): void {
    const needed = neededMiB(this.path, masters);
    const { bavail, bsize } = statfsSync(this.path);
    const freeMiB = Math.floor((bavail * bsize) / 2 ** 20);
    if (freeMiB >= needed) return;
    const message = `The disk of the data directory ${this.path} is too full: ${freeMiB} MiB are free, and ${needed} MiB are needed to start. Free disk space, or give a directory on another disk with --data DIR.`;
    throw new AppError("invalid_value", message);
  }

  #masters(): MasterFiles[] {
    const masters = readdirSync(this.path).flatMap((name) => {
      const number = Number(/^master-(\d+)$/.exec(name)?.[1] ?? 0);
      const file = join(this.path, name, "control", "identity.json");
      return number > 0 && existsSync(file) ? [{ name, number, cluster: clusterOf(file) }] : [];
    });
    return masters.sort((a, b) => a.number - b.number);
  }

  #severalClusters(clusters: readonly (readonly MasterFiles[])[]): AppError {
    const namesOf = (masters: readonly MasterFiles[]) => masters.map(({ name }) => name);
    const keep = clusters.map((kept) => {
      const others = clusters.filter((cluster) => cluster !== kept).flatMap(namesOf);
      const directories = others.map((name) => join(this.path, name)).join(" ");
      return `to keep ${namesOf(kept).join(" and ")} (cluster ${kept[0]?.cluster}): rm -r ${directories}`;
    });
    const message = `${this.path} holds masters of ${clusters.length} clusters, each of which would accept changes. Keep one: after a recovery or a restore, the one that it made. The other masters join it again with empty directories. Either ${keep.join("; or ")}`;
    return new AppError("conflict", message);
  }

  /** Locks the directory for this process; throws `conflict` with the process that holds it. */
  lock(address: string): { release(): void } {
    const file = join(this.path, "lock");
    const draft = `${file}.${process.pid}`;
    const holder: LockHolder = { pid: process.pid, address, started: processStart(process.pid) };
    try {
      writeFileSync(draft, JSON.stringify(holder), { mode: 0o600 });
    } catch (error) {
      const { message } = error as Error;
      throw new AppError(
        "invalid_value",
        `The data directory ${this.path} cannot be written: ${message}. Give another with --data DIR.`,
      );
    }
    try {
      if (!tryLink(draft, file)) {
        this.#removeStale(file);
        if (!tryLink(draft, file)) throw this.#inUse(readHolder(file));
      }
    } finally {
      rmSync(draft, { force: true });
    }
    return { release: () => rmSync(file, { force: true }) };
  }

  #removeStale(file: string): void {
    const holder = readHolder(file);
    if (holder && isSameProcess(holder.pid, holder.started)) throw this.#inUse(holder);
    // Renamed and not removed, so that only one of two processes removes a stale lock.
    const aside = `${file}.stale.${process.pid}`;
    try {
      renameSync(file, aside);
    } catch {
      return; // The other process was faster; the link that follows decides.
    }
    const moved = readHolder(aside);
    if (moved && isSameProcess(moved.pid, moved.started)) tryLink(aside, file);
    rmSync(aside, { force: true });
  }

  #inUse(holder: LockHolder | undefined): AppError {
    const who = holder ? `process ${holder.pid} at ${holder.address}` : "another process";
    return new AppError(
      "conflict",
      `${this.path} is in use by ${who}. Stop that one, or give this one its own --data DIR and --port.`,
    );
  }

  /** Reads the authority and the key by which nodes join, or creates them at the first start with TLS. */
  async tlsFiles(keys: SecretKeys): Promise<TlsFiles> {
    const [{ ensureAuthority }, { authorityHash }, { formatJoinToken }] = await Promise.all([
      import("@heddle/pki/tls-files"),
      import("@heddle/pki/certificate-authority"),
      import("@heddle/pki/join-token"),
    ]);
    const authorityFile = join(this.path, "cluster-ca.pem");
    const enrollKeyFile = join(this.path, "enroll-key");
    this.#adoptAuthority(authorityFile);
    const hash = authorityHash((await ensureAuthority(authorityFile, keys)).certificate);
    const keyOf = (secret: string) => formatJoinToken({ authorityHash: hash, secret });
    const isCurrent =
      existsSync(enrollKeyFile) && readFileSync(enrollKeyFile, "utf8").startsWith(keyOf(""));
    if (!isCurrent) replaceFileSync(enrollKeyFile, `${keyOf(createApiKey("local").text)}\n`);
    return { authorityFile, enrollKeyFile };
  }

  /** The file with a master's join token. */
  joinTokenFile(name: string): string {
    return join(this.subdirectory("join-tokens"), name);
  }

  writeJoinToken(name: string, token: string): void {
    replaceFileSync(this.joinTokenFile(name), `${token}\n`);
  }

  /** A master restored from a backup has its cluster's authority in its own directory. */
  #adoptAuthority(authorityFile: string): void {
    if (existsSync(authorityFile)) return;
    const brought = readdirSync(this.path)
      .filter((name) => /^master-\d+$/.test(name))
      .map((name) => join(this.path, name, "cluster-ca.pem"))
      .find((file) => existsSync(file));
    if (brought) replaceFileSync(authorityFile, readFileSync(brought, "utf8"));
  }

  /** Reads or creates the secrets, and writes the masters' endpoints for the CLI. */
  secrets(endpoints: Credentials["endpoints"]): ClusterSecrets {
    const bootstrapKeyFile = join(this.path, "bootstrap-key");
    const clusterTokenFile = join(this.path, "cluster-token");
    const isNew = !existsSync(bootstrapKeyFile);
    const apiKey = isNew
      ? (readCredentials(this.path)?.apiKey ?? createApiKey("local").text)
      : readFileSync(bootstrapKeyFile, "utf8").trim();
    replaceFileSync(bootstrapKeyFile, `${apiKey}\n`);
    if (!existsSync(clusterTokenFile)) {
      replaceFileSync(clusterTokenFile, `${randomBytes(32).toString("base64url")}\n`);
    }
    this.#writeCredentials({ endpoints, apiKey });
    return { apiKey, isNew, bootstrapKeyFile, clusterTokenFile };
  }

  /** Replaces the administrator's key. */
  replaceKey(credentials: Credentials): void {
    replaceFileSync(join(this.path, "bootstrap-key"), `${credentials.apiKey}\n`);
    this.#writeCredentials(credentials);
  }

  #writeCredentials({ endpoints, apiKey }: Credentials): void {
    const text = JSON.stringify({ endpoint: endpoints[0], endpoints, api_key: apiKey }, null, 2);
    replaceFileSync(credentialsFile(this.path), `${text}\n`);
  }
}

/**
 * Node's recursive mkdir never returns if the parent exists and the system yet answers ENOENT, as
 * /proc does. So each directory is created separately, parents first.
 */
function makeDirectories(path: string): void {
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) return;
  if (dirname(path) !== path) makeDirectories(dirname(path));
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    // Another process may have created it meanwhile.
    if (!statSync(path, { throwIfNoEntry: false })?.isDirectory()) throw error;
  }
}

/** A damaged identity is reported by the master. */
function clusterOf(identityFile: string): string | undefined {
  try {
    return (JSON.parse(readFileSync(identityFile, "utf8")) as { cluster?: string }).cluster;
  } catch {
    return undefined;
  }
}

function tryLink(from: string, to: string): boolean {
  try {
    linkSync(from, to);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
}

/** Disk space for the start of this many masters; those that exist have their log files. */
export function neededMiB(dataDir: string, masters: number): number {
  const names = Array.from({ length: masters }, (_, i) => `master-${i + 1}`);
  const fresh = names.filter((name) => !existsSync(join(dataDir, name, "control", "wal")));
  return fresh.length * MASTER_MIB + SPARE_MIB;
}

/** The running process that has locked a data directory; undefined if there is none. */
export function runningHolder(dataDir: string): LockHolder | undefined {
  const holder = readHolder(join(dataDir, "lock"));
  return holder && isSameProcess(holder.pid, holder.started) ? holder : undefined;
}

function readHolder(file: string): LockHolder | undefined {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as LockHolder;
  } catch {
    return undefined; // Gone meanwhile, or damaged: either way it holds nothing.
  }
}
