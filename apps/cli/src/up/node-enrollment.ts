import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { HeddleError } from "@heddle/client/errors";
import type { Heddle } from "@heddle/client/heddle";
import type { DataDirectory } from "./data-directory.ts";
import type { ProcessKind } from "./supervised-process.ts";

const RETRY_MS = 250;
/** Within this the node must have begun; a start that takes longer has failed. */
const TOKEN_SECONDS = 600;

/** Adds this cluster's own nodes as its administrator: each gets a join token of its own. */
export class NodeEnrollment {
  readonly #client: Heddle;
  readonly #data: DataDirectory;
  readonly #signal: AbortSignal;

  constructor(client: Heddle, data: DataDirectory, signal: AbortSignal) {
    this.#client = client;
    this.#data = data;
    this.#signal = signal;
  }

  /** Writes the node's token to its file, as soon as a master answers. */
  async add(role: ProcessKind, name: string): Promise<void> {
    const body = { role, name, ttl_seconds: TOKEN_SECONDS };
    while (!this.#signal.aborted) {
      try {
        const { token } = await this.#client.cluster.createJoinToken(body);
        this.#data.writeJoinToken(name, token);
        return;
      } catch (error) {
        if (!(error instanceof HeddleError) || (error.status ?? 500) < 500) throw error;
      }
      await delay(RETRY_MS, undefined, { signal: this.#signal }).catch(() => undefined);
    }
  }

  /** The masters without a place in the group that the others have; none where all are new. */
  newMasters(names: readonly string[]): string[] {
    const added = names.filter((name) => hasGroup(this.#data.subdirectory(name)));
    return added.length === 0 ? [] : names.filter((name) => !added.includes(name));
  }
}

function hasGroup(directory: string): boolean {
  const file = join(directory, "control", "identity.json");
  if (!existsSync(file)) return false;
  try {
    return (JSON.parse(readFileSync(file, "utf8")) as { cluster?: unknown }).cluster !== undefined;
  } catch {
    return true; // Damaged: the master itself says what to do.
  }
}
