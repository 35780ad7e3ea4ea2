import { randomUUID } from "node:crypto";
import { AppError, toAppError } from "@heddle/base/errors";
import type { ResponseItem } from "@heddle/contracts/api/responses/items";
import type { ApiResponse } from "@heddle/contracts/api/responses/response";
import { settingValue } from "@heddle/contracts/api/settings";
import { Inject } from "@nestjs/common";
import { MASTER_CONFIG } from "../../config/config.module.ts";
import type { MasterConfig } from "../../config/config.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { DOCUMENTS, type DocumentPlace, type Documents } from "../../documents/documents.ts";
import type { Caller } from "../../http/identity/caller.ts";
import type { Piece } from "./pieces.ts";
import {
  failureOutcome,
  type Outcome,
  ResponseBuilder,
  type ResponseHead,
} from "./response-builder.ts";
import { ResponseRelay } from "./response-relay.ts";

/** A response as it is stored: what its events and its shown form follow from. */
export interface StoredResponse {
  readonly head: ResponseHead;
  readonly input: readonly ResponseItem[];
  /** Whether a worker has begun with it. */
  readonly hasBegun: boolean;
  readonly pieces: readonly Piece[];
  /** Absent while it runs. */
  readonly outcome?: Outcome | undefined;
}

/** With its version, for compare-and-set. */
export interface KeptResponse {
  readonly stored: StoredResponse;
  readonly version: number;
  /** The other master that runs it. */
  readonly master?: string | undefined;
}

const DAY_MS = 86_400_000;
/** After a call's deadline, the time in which its master may store its outcome. */
const GRACE_MS = 60_000;
const NO_USAGE = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };

/** Responses in the masters' store. A caller sees those of its key and its successors in its project. */
export class ResponseStore {
  readonly #documents: Documents;
  /** To the masters that run others. */
  readonly relay: ResponseRelay;
  readonly #control: ControlPlane;
  readonly #masterId: string;
  readonly #deadlineMs: number;
  /** This life of the master: runs of an earlier one are lost. */
  readonly #life = randomUUID();
  /** The responses that run here. */
  readonly running = new Set<string>();

  constructor(
    @Inject(DOCUMENTS) documents: Documents,
    @Inject(ResponseRelay) relay: ResponseRelay,
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(MASTER_CONFIG) config: Pick<MasterConfig, "masterId" | "deadlineMs">,
  ) {
    this.#documents = documents;
    this.relay = relay;
    this.#control = control;
    this.#masterId = config.masterId;
    this.#deadlineMs = config.deadlineMs;
  }

  placeOf(caller: Caller): DocumentPlace {
    return this.#documents.placeOf(caller);
  }

  /** Throws `insufficient_storage` or `insufficient_quota` before work that could not be stored. */
  checkRoom(place: DocumentPlace, bytes: number): void {
    this.#documents.checkRoom(place, bytes);
  }

  /** Stores the response; resolves with its version. */
  async save(
    place: DocumentPlace,
    stored: StoredResponse,
    expectedVersion?: number | undefined,
  ): Promise<number> {
    const days = settingValue(this.#control.state.settings, "response_days");
    const isRunning = stored.outcome === undefined;
    const { version } = await this.#documents.put(
      {
        kind: "response",
        id: stored.head.id,
        ...place,
        expiresAtMs: Date.now() + days * DAY_MS,
        metadata: isRunning ? { master: this.#masterId, life: this.#life } : {},
      },
      Buffer.from(JSON.stringify(stored)),
      { expectedVersion },
    );
    return version;
  }

  /**
   * The response, if the owner has it: as it is now where another master runs it, and failed where
   * its master has lost it.
   */
  async find(place: DocumentPlace, id: string): Promise<KeptResponse | undefined> {
    const found = await this.#read(place, id);
    if (!found || found.kept.stored.outcome) return found?.kept;
    const { kept, metadata } = found;
    const { master = "", life } = metadata;
    if (master === this.#masterId) {
      const isHere = life === this.#life && this.running.has(id);
      return isHere ? kept : this.#ended(place, id);
    }
    if (Date.now() > this.#lastMs(kept.stored)) return this.#ended(place, id);
    const polled = await this.relay.poll(master, id, place.owner);
    if (polled === "lost") return this.#ended(place, id);
    const stored = polled === "unknown" ? kept.stored : { ...kept.stored, ...polled };
    return { ...kept, stored, master };
  }

  /** Throws `not_found` where the owner has no such response. */
  async get(place: DocumentPlace, id: string): Promise<KeptResponse> {
    const kept = await this.find(place, id);
    if (kept) return kept;
    throw notFound(id);
  }

  /** Throws `not_found` where the owner has no such response. */
  async delete(place: DocumentPlace, id: string): Promise<void> {
    const isKnown = isId(id) && (await this.#documents.delete("response", id, place));
    if (!isKnown) throw notFound(id);
  }

  async #read(place: DocumentPlace, id: string) {
    if (!isId(id)) return undefined;
    const found = await this.#documents.get("response", id, place);
    if (!found) return undefined;
    const stored = JSON.parse(Buffer.from(found.content).toString()) as StoredResponse;
    const { version, metadata = {} } = found.record;
    return { kept: { stored, version }, metadata };
  }

  /** The time by which its master, if it lives, has ended it. */
  #lastMs({ head }: StoredResponse): number {
    return head.created_at * 1000 + this.#deadlineMs + GRACE_MS;
  }

  /** A response that runs nowhere now: it may have ended since it was read, or else it is lost. */
  async #ended(place: DocumentPlace, id: string): Promise<KeptResponse | undefined> {
    const found = await this.#read(place, id);
    if (!found || found.kept.stored.outcome) return found?.kept;
    return this.#markLost(place, found.kept);
  }

  async #markLost(place: DocumentPlace, { stored, version }: KeptResponse): Promise<KeptResponse> {
    const message = "The master that ran this response was lost. Create the response again.";
    const outcome = failureOutcome(new AppError("unavailable", message), NO_USAGE);
    const failed = { ...stored, outcome };
    try {
      return { stored: failed, version: await this.save(place, failed, version) };
    } catch (thrown) {
      // Another reader, or the master itself, was first.
      if (toAppError(thrown).code !== "precondition_failed") throw thrown;
      return this.get(place, stored.head.id);
    }
  }
}

const MAX_ID_CHARS = 128;

function isId(id: string): boolean {
  return /^[A-Za-z0-9_-]{1,128}$/.test(id);
}

function notFound(id: string): AppError {
  return new AppError("not_found", `No response has the id '${id.slice(0, MAX_ID_CHARS)}'.`);
}

/** The response as the API shows it. */
export function shown({ head, hasBegun, pieces, outcome }: StoredResponse): ApiResponse {
  const builder = new ResponseBuilder(head);
  builder.create();
  if (hasBegun) builder.begin();
  for (const piece of pieces) builder.push(piece);
  if (outcome) builder.end(outcome);
  return builder.response;
}

/** The response's items, with its input's: what a next one continues from. */
export function itemsOfStored(stored: StoredResponse): readonly ResponseItem[] {
  return [...stored.input, ...shown(stored).output];
}
