import type {
  Hold,
  Later,
  LimitRefusal,
  LimitStore,
  Subject,
} from "@heddle/auth/limits/limit-store";
import type { AppError } from "@heddle/base/errors";
import {
  costOf,
  type LimitedSubject,
  limitedSubjectOf,
  type Prices,
  subjectId,
} from "@heddle/contracts/limits";
import type { ApiKeyRecord, ControlState, ModelRecord } from "@heddle/control/state";
import {
  CallReservation,
  type CallTokenCounts,
  DEFAULT_PROJECT,
  headersOf,
} from "./call-reservation.ts";
import type { LimitDivision } from "./limit-division.ts";
import { limitError, type RefusedCall } from "./limit-refusal.ts";

export interface CallLimiterOptions {
  readonly store: LimitStore;
  readonly division: LimitDivision;
  readonly state: () => Pick<ControlState, "keys" | "limits">;
  /** Called for each refusal. */
  readonly onRefused?: ((refusal: LimitRefusal) => void) | undefined;
}

type Key = Pick<ApiKeyRecord, "id" | "limits" | "project" | "rotatedFrom">;

/** A model that is called: its id, and whose it is. */
type LimitedModel = Pick<ModelRecord, "id" | "project">;

/** The limits of keys, projects and models: the one admission of the calls of all routes. */
export class CallLimiter {
  readonly #options: CallLimiterOptions;

  constructor(options: CallLimiterOptions) {
    this.#options = options;
  }

  /** Counts a call of the key and its project. Throws the refusal without counting it. */
  admit(key: Key): Later<CallReservation> {
    const admitted = this.#options.store.admit(this.#callersOf(key));
    const owner = ownerOf(this.#options.state().keys, key);
    if (!(admitted instanceof Promise)) return this.#reservationOf(admitted, owner);
    return admitted.then((each) => this.#reservationOf(each, owner));
  }

  /**
   * Counts the call for its model and reserves its tokens and what they cost. Throws the refusal and
   * no longer counts the call.
   */
  async reserve(
    reservation: CallReservation,
    model: LimitedModel,
    tokens: CallTokenCounts,
  ): Promise<void> {
    const subject = subjectOfModel(model);
    const record = this.#options.state().limits.get(subjectId(subject));
    const prices = record?.prices;
    try {
      const hold = record && (await this.#modelHold({ ...subject, limits: record.limits }));
      reservation.handOver(hold, prices);
      await this.#reserveAll(reservation, prices, tokens);
    } catch (thrown) {
      reservation.cancel();
      throw thrown;
    }
  }

  /** The headers with the rest of the key's and its project's limits. */
  headersOf(key: Key): Record<string, string> {
    return headersOf(this.#options.store.views(this.#callersOf(key)));
  }

  /** The most output tokens of a call that asks for no number, if a limit bounds them. */
  affordableOutput(key: Key, model: LimitedModel, promptTokens: number): number | undefined {
    const { state, store, division } = this.#options;
    const subject = subjectOfModel(model);
    const record = state().limits.get(subjectId(subject));
    const subjects = this.#callersOf(key);
    if (record) subjects.push({ ...subject, limits: record.limits });
    const bounds = subjects.flatMap((subject) => {
      const { tokensPerMinute } = division.shareOf(subject.limits);
      const left = record?.prices && store.budgetLeft(subject);
      const free = (left ?? 0) - costOf(record?.prices, { promptTokens, completionTokens: 0 });
      const price = record?.prices?.output ?? 0;
      return [
        ...(tokensPerMinute === undefined ? [] : [tokensPerMinute - promptTokens]),
        ...(left === undefined || price === 0 ? [] : [Math.floor(free / price)]),
      ];
    });
    return bounds.length > 0 ? Math.min(...bounds) : undefined;
  }

  async #modelHold(model: Subject): Promise<Hold> {
    const admitted = await this.#options.store.admit([model]);
    if (admitted.ok) return admitted;
    throw this.#refused({ refusal: admitted });
  }

  async #reserveAll(
    reservation: CallReservation,
    prices: Prices | undefined,
    tokens: CallTokenCounts,
  ): Promise<void> {
    const spend = costOf(prices, tokens);
    const amounts = { tokens: tokens.promptTokens + tokens.completionTokens, spend };
    if (amounts.tokens === 0) return;
    for (const hold of reservation.holds) {
      const reserving = hold.reserve(amounts);
      const refusal = reserving instanceof Promise ? await reserving : reserving;
      if (refusal) throw this.#refused({ refusal, ...amounts });
    }
  }

  #reservationOf(admitted: Hold | LimitRefusal, owner: string): CallReservation {
    if (admitted.ok) return new CallReservation(admitted, owner);
    throw this.#refused({ refusal: admitted });
  }

  #callersOf(key: Key): Subject[] {
    const name = ownerOf(this.#options.state().keys, key);
    const subjects: Subject[] = [{ kind: "key", name, limits: key.limits }];
    const { limits } = this.#options.state();
    if (limits.size === 0) return subjects;
    const project = key.project ?? DEFAULT_PROJECT;
    const record = limits.get(subjectId({ kind: "project", name: project }));
    if (record) subjects.push({ kind: "project", name: project, limits: record.limits });
    return subjects;
  }

  #refused(refused: Omit<RefusedCall, "division" | "left">): AppError {
    const { store, division, onRefused } = this.#options;
    const { refusal } = refused;
    onRefused?.(refusal);
    return limitError({ ...refused, division, left: store.budgetLeft(refusal.subject) });
  }
}

/** Every key, project and model that has a budget. */
export function* budgetedSubjects({
  keys,
  limits,
}: Pick<ControlState, "keys" | "limits">): Generator<Subject, void> {
  for (const key of keys.values()) {
    if (key.limits.budget) yield { kind: "key", name: ownerOf(keys, key), limits: key.limits };
  }
  for (const [id, record] of limits) {
    if (!record.limits.budget) continue;
    yield { ...limitedSubjectOf(id), limits: record.limits };
  }
}

function subjectOfModel({ id, project }: LimitedModel): LimitedSubject {
  return { kind: "model", name: id, project };
}

/** The first of the keys that this one replaced: rotation gives no further limits. */
function ownerOf(keys: ControlState["keys"], { id, rotatedFrom }: Key): string {
  let [owner, before] = [id, rotatedFrom];
  while (before !== undefined) {
    owner = before;
    before = keys.get(owner)?.rotatedFrom;
  }
  return owner;
}
