import { readFileSync } from "node:fs";
import { join } from "node:path";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { replaceFileBeneath } from "@heddle/base/beneath";
import { clusterRefusal } from "@heddle/base/cluster-id";
import { AppError } from "@heddle/base/errors";
import { RevokedNodes } from "@heddle/pki/revoked-nodes";

const FILE = "cluster.json";

/**
 * The cluster that this node works for, kept over restarts. It switches to a later incarnation of
 * its cluster, as after a restore, and never back.
 */
export class FollowedCluster {
  /** As its masters report them. */
  readonly revoked = new RevokedNodes();
  readonly #directory: string;
  readonly #listeners = new Set<() => void>();
  #id: string | undefined;
  #saved: string | undefined;
  readonly #saves = new SerialQueue();

  /** Throws if the file exists and is unreadable. */
  constructor(directory: string) {
    this.#directory = directory;
    this.#id = read(join(directory, FILE));
    this.#saved = this.#id;
  }

  /** Undefined until a master has reported its cluster. */
  get id(): string | undefined {
    return this.#id;
  }

  /** Called before the node acts for a new cluster. */
  onChange(listener: () => void): void {
    this.#listeners.add(listener);
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
}

function read(path: string): string | undefined {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
  const { cluster } = JSON.parse(text) as { cluster?: unknown };
  return typeof cluster === "string" ? cluster : undefined;
}
