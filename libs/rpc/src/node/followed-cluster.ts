import { readFileSync } from "node:fs";
import { join } from "node:path";
import { replaceFileBeneath } from "@heddle/base/beneath";
import { clusterRefusal } from "@heddle/base/cluster-id";
import { AppError } from "@heddle/base/errors";

const FILE = "cluster.json";

/**
 * Which cluster this node works for, kept over its restarts. It goes over to a later incarnation of its
 * cluster, as after a restore, and never back.
 */
export class FollowedCluster {
  readonly #directory: string;
  readonly #listeners = new Set<() => void>();
  #id: string | undefined;
  #saved: string | undefined;
  #saving: Promise<void> = Promise.resolve();

  /** Throws where the file is there and cannot be read. */
  constructor(directory: string) {
    this.#directory = directory;
    this.#id = read(join(directory, FILE));
    this.#saved = this.#id;
  }

  /** Undefined until a master has told. */
  get id(): string | undefined {
    return this.#id;
  }

  /** Told before anything is done for another cluster than before. */
  onChange(listener: () => void): void {
    this.#listeners.add(listener);
  }

  /** Why this node does not work for that cluster; undefined where it does, or would. */
  refusalOf(cluster: string): string | undefined {
    return cluster === "" ? undefined : clusterRefusal(this.#id, cluster);
  }

  /**
   * Works for that cluster from now on; resolves when that is on the disk. Throws an AppError
   * `precondition_failed` for an incarnation that is over. One that says no id is not compared.
   */
  async follow(cluster: string): Promise<void> {
    const refusal = this.refusalOf(cluster);
    if (refusal !== undefined) throw new AppError("precondition_failed", refusal);
    if (cluster !== "" && cluster !== this.#id) {
      this.#id = cluster;
      for (const listener of this.#listeners) listener();
    }
    if (this.#saved === this.#id) return;
    const save = () => this.#save();
    this.#saving = this.#saving.then(save, save);
    await this.#saving;
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
