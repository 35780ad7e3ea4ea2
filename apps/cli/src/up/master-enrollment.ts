import { retry } from "@heddle/base/async/retry";
import { HeddleError } from "@heddle/client/errors";
import type { Heddle } from "@heddle/client/heddle";
import { hasGroup } from "@heddle/consensus/member/identity";
import type { DataDirectory } from "./data-directory.ts";

const RETRY_MS = 250;
/** A master must start within this time; a longer start has failed. */
const TOKEN_SECONDS = 600;

/** Adds further masters to this cluster as its administrator; each gets its own join token. */
export class MasterEnrollment {
  readonly #client: Heddle;
  readonly #data: DataDirectory;
  readonly #signal: AbortSignal;

  constructor(client: Heddle, data: DataDirectory, signal: AbortSignal) {
    this.#client = client;
    this.#data = data;
    this.#signal = signal;
  }

  /** Writes the master's token to its file as soon as another one answers. */
  async add(name: string): Promise<void> {
    const body = { role: "master" as const, name, ttl_seconds: TOKEN_SECONDS };
    const signal = this.#signal;
    try {
      const { token } = await retry(() => this.#client.cluster.createJoinToken(body), {
        backoff: { baseMs: RETRY_MS, maxMs: RETRY_MS },
        signal,
        isPassing: (error) => error instanceof HeddleError && (error.status ?? 500) >= 500,
      });
      this.#data.writeJoinToken(name, token);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /** The masters that are not members of the others' group; none if all are new. */
  newMasters(names: readonly string[]): string[] {
    const added = names.filter((name) => hasGroup(this.#data.subdirectory(name)));
    return added.length === 0 ? [] : names.filter((name) => !added.includes(name));
  }
}
