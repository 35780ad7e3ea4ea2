import { readFileSync } from "node:fs";
import { join } from "node:path";
import { FreshRun } from "@heddle/base/async/fresh-run";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { replaceFileBeneath } from "@heddle/base/beneath";
import { clusterRefusal } from "@heddle/base/cluster-id";
import { AppError } from "@heddle/base/errors";
import { type Revocation, RevokedNodes } from "@heddle/pki/revoked-nodes";

const FILE = "cluster.json";
const REVOKED_FILE = "revoked-nodes.json";

/**
 * The cluster that this node works for, kept over restarts. It switches to a later incarnation of
 * its cluster, as after a restore, and never back.
 */
export class FollowedCluster {
  /** As its masters report them, kept over restarts. */
  readonly revoked: RevokedNodes;
  readonly #directory: string;
  readonly #listeners = new Set<() => void>();
  #id: string | undefined;
  #saved: string | undefined;
  readonly #saves = new SerialQueue();
  readonly #revokedSaves = new FreshRun(() => this.#saveRevoked());
  #onRevoked: (() => void) | undefined;

  /** Throws if a file exists and is unreadable. */
  constructor(directory: string) {
    this.#directory = directory;
    this.#id = read(join(directory, FILE));
    this.#saved = this.#id;
    this.revoked = new RevokedNodes(readRevoked(join(directory, REVOKED_FILE)));
  }

  /** Undefined until a master has reported its cluster. */
  get id(): string | undefined {
    return this.#id;
  }

  /** Called before the node acts for a new cluster. */
  onChange(listener: () => void): void {
    this.#listeners.add(listener);
  }

  /** Called when certificates were revoked. */
  onRevoked(listener: () => void): void {
    this.#onRevoked = listener;
  }

  /** Takes what a master reports; resolves when that is on disk. */
  async revoke(reported: readonly Revocation[]): Promise<void> {
    if (!this.revoked.add(reported)) return;
    this.#onRevoked?.();
    await this.#revokedSaves.get();
  }

  /** Why this node refuses the cluster; undefined if it accepts it. */
  refusalOf(cluster: string): string | undefined {
    return cluster === "" ? undefined : clusterRefusal(this.#id, cluster);
  }

  /**
   * Switches to that cluster; resolves when that is on disk. Throws an AppError
   * `precondition_failed` for an incarnation that has ended. A cluster without an id is accepted.
   */
  async follow(cluster: string): Promise<void> {
    const refusal = this.refusalOf(cluster);
    if (refusal !== undefined) throw new AppError("precondition_failed", refusal);
    if (cluster !== "" && cluster !== this.#id) {
      this.#id = cluster;
      for (const listener of this.#listeners) listener();
    }
    if (this.#saved === this.#id) return;
    await this.#saves.run(() => this.#save());
  }

  async #save(): Promise<void> {
    const cluster = this.#id;
    await replaceFileBeneath(this.#directory, FILE, JSON.stringify({ cluster }));
    this.#saved = cluster;
  }

  async #saveRevoked(): Promise<void> {
    await replaceFileBeneath(this.#directory, REVOKED_FILE, JSON.stringify(this.revoked.all));
  }
}

function read(path: string): string | undefined {
  const { cluster } = (readJson(path) ?? {}) as { cluster?: unknown };
  return typeof cluster === "string" ? cluster : undefined;
}

function readRevoked(path: string): Revocation[] {
  const known = readJson(path) ?? [];
  if (Array.isArray(known) && known.every(isRevocation)) return known;
  const message = `${path} has no list of revoked nodes: restore it, or remove it, and the masters report them again`;
  throw new AppError("invalid_value", message);
}

function isRevocation(entry: unknown): entry is Revocation {
  return Array.isArray(entry) && typeof entry[0] === "string" && typeof entry[1] === "number";
}

function readJson(path: string): unknown {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new AppError("invalid_value", `${path} is no JSON: restore it, or remove it`, { cause });
  }
}
