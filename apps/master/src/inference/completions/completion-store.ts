import { createHash, randomUUID } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import type { AsyncCompletion, CompletionAnswer } from "@heddle/contracts/api/completions";
import { Inject } from "@nestjs/common";
import { MASTER_CONFIG } from "../../config/config.module.ts";
import type { MasterConfig } from "../../config/config.ts";
import { DOCUMENTS, type DocumentPlace, type Documents } from "../../documents/documents.ts";
import type { Caller } from "../../http/identity/caller.ts";

/** How long one is kept, and with it the name that its `Idempotency-Key` gave it. */
const KEPT_MS = 86_400_000;
/** After a call's deadline, the time in which its master may store its end. */
const GRACE_MS = 60_000;

/** A completion without its client, as it is stored. */
export interface StoredCompletion {
  readonly id: string;
  /** Seconds since the epoch. */
  readonly created: number;
  readonly model: string;
  readonly fingerprint: string;
  /** A hash of the request, which a retry must have too. */
  readonly request: string;
  readonly status: AsyncCompletion["status"];
  readonly answer?: CompletionAnswer | undefined;
  readonly error?: AsyncCompletion["error"] | undefined;
}

/** With its version, for compare-and-set. */
export interface KeptCompletion {
  readonly stored: StoredCompletion;
  readonly version: number;
}

/** Completions without their clients, in the masters' store for a day. */
export class CompletionStore {
  readonly #documents: Documents;
  readonly #masterId: string;
  readonly #deadlineMs: number;
  /** This life of the master: runs of an earlier one are lost. */
  readonly #life = randomUUID();
  /** IDs of the completions that run on this master. */
  readonly running = new Set<string>();

  constructor(
    @Inject(DOCUMENTS) documents: Documents,
    @Inject(MASTER_CONFIG) config: Pick<MasterConfig, "masterId" | "deadlineMs">,
  ) {
    this.#documents = documents;
    this.#masterId = config.masterId;
    this.#deadlineMs = config.deadlineMs;
  }

  placeOf(caller: Caller): DocumentPlace {
    return this.#documents.placeOf(caller);
  }

  /** Stores it; resolves with its version. */
  async save(
    place: DocumentPlace,
    stored: StoredCompletion,
    expectedVersion: number,
  ): Promise<number> {
    const isRunning = stored.status === "in_progress";
    const { version } = await this.#documents.put(
      {
        kind: "completion",
        id: stored.id,
        ...place,
        expiresAtMs: stored.created * 1000 + KEPT_MS,
        metadata: isRunning ? { master: this.#masterId, life: this.#life } : {},
      },
      Buffer.from(JSON.stringify(stored)),
      { expectedVersion },
    );
    return version;
  }

  /** The completion, if the owner has it. One whose master is lost has failed. */
  async find(place: DocumentPlace, id: string): Promise<KeptCompletion | undefined> {
    if (!/^[A-Za-z0-9_-]{1,128}$/.test(id)) return undefined;
    // One that ends during the read runs no more after it.
    const isRunning = this.running.has(id);
    const found = await this.#documents.get("completion", id, place);
    if (!found) return undefined;
    const stored = JSON.parse(Buffer.from(found.content).toString()) as StoredCompletion;
    const { version, metadata = {} } = found.record;
    const isOpen = stored.status === "in_progress" && !isRunning;
    const isLost = isOpen && this.#isLost(stored, metadata);
    return { stored: isLost ? { ...stored, status: "failed", error: LOST } : stored, version };
  }

  /** Throws `not_found` where the owner has no such completion. */
  async get(place: DocumentPlace, id: string): Promise<KeptCompletion> {
    const kept = await this.find(place, id);
    if (kept) return kept;
    const shown = id.slice(0, MAX_ID_CHARS);
    throw new AppError("not_found", `No asynchronous completion has the id '${shown}'.`);
  }

  async delete(place: DocumentPlace, id: string): Promise<void> {
    await this.#documents.delete("completion", id, place);
  }

  /** Whether a completion is lost that did not run here when its record was read. */
  #isLost(
    { id, created }: StoredCompletion,
    { master, life }: Readonly<Record<string, string>>,
  ): boolean {
    if (master === this.#masterId) return life !== this.#life || !this.running.has(id);
    return Date.now() > created * 1000 + this.#deadlineMs + GRACE_MS;
  }
}

const MAX_ID_CHARS = 128;
const LOST = {
  code: "unavailable",
  message: "The master that ran this completion was lost. Create it again.",
  param: null,
};

/** The id under an `Idempotency-Key`, the same for each retry. */
export function idUnder({ owner, project }: DocumentPlace, key: string): string {
  const hash = createHash("sha256").update(`${owner}\n${project}\n${key}`).digest("hex");
  return `cmpl-${hash.slice(0, 32)}`;
}

/** The completion as the API shows it. */
export function completionView(stored: StoredCompletion): AsyncCompletion {
  const { id, created, model, fingerprint, status, answer, error = null } = stored;
  return {
    id,
    object: "text_completion",
    created,
    model,
    system_fingerprint: fingerprint,
    status,
    choices: answer?.choices ?? [],
    usage: answer?.usage ?? null,
    error,
    expires_at: created + KEPT_MS / 1000,
  };
}
