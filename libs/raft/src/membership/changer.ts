import type { ConfState } from "../core/state.ts";
import { invariant } from "../invariant.ts";
import type { Inflights } from "../tracker/inflights.ts";
import { Progress } from "../tracker/progress.ts";
import type { TrackedConfig } from "../tracker/tracker.ts";
import type { ConfChangeSingle } from "./conf-change.ts";

/** The next configuration, or why the change does not apply to the current one. */
export type ChangeResult =
  | { readonly ok: true; readonly next: TrackedConfig }
  | { readonly ok: false; readonly error: string };

interface ChangerOptions {
  readonly lastIndex: number;
  readonly newInflights: () => Inflights;
}

/** A mutable configuration with the sets of TrackedConfig. */
interface Draft {
  readonly incoming: Set<number>;
  readonly outgoing: Set<number>;
  readonly learners: Set<number>;
  readonly learnersNext: Set<number>;
  readonly progress: Map<number, Progress>;
  autoLeave: boolean;
}

/** Computes the configuration that follows a change; never modifies the one that it starts from. */
export class Changer {
  readonly #current: TrackedConfig;
  readonly #options: ChangerOptions;

  constructor(current: TrackedConfig, options: ChangerOptions) {
    this.#current = current;
    this.#options = options;
  }

  /** Applies steps that change at most one voter, which keeps old and new majorities overlapping. */
  simple(changes: readonly ConfChangeSingle[]): ChangeResult {
    const draft = this.#draft();
    if (draft.outgoing.size > 0) return refuse("can't apply simple config change in joint config");
    const error = this.#apply(draft, changes);
    if (error) return refuse(error);
    const before = this.#current.config.voters.incoming;
    const changed = [...before, ...draft.incoming].filter(
      (id) => before.has(id) !== draft.incoming.has(id),
    );
    if (changed.length > 1) {
      return refuse("more than one voter changed without entering joint config");
    }
    return finish(draft);
  }

  /** Keeps the current voters as the outgoing half and applies the steps to the incoming one. */
  enterJoint(changes: readonly ConfChangeSingle[], autoLeave: boolean): ChangeResult {
    const draft = this.#draft();
    if (draft.outgoing.size > 0) return refuse("config is already joint");
    if (draft.incoming.size === 0) return refuse("can't make a zero-voter config joint");
    for (const id of draft.incoming) draft.outgoing.add(id);
    const error = this.#apply(draft, changes);
    if (error) return refuse(error);
    draft.autoLeave = autoLeave;
    return finish(draft);
  }

  /** Drops the outgoing half and makes the members of `learnersNext` learners. */
  leaveJoint(): ChangeResult {
    const draft = this.#draft();
    if (draft.outgoing.size === 0) return refuse("can't leave a non-joint config");
    for (const id of draft.learnersNext) {
      draft.learners.add(id);
      const progress = draft.progress.get(id);
      if (progress) progress.isLearner = true;
    }
    draft.learnersNext.clear();
    for (const id of draft.outgoing) {
      if (!draft.incoming.has(id) && !draft.learners.has(id)) draft.progress.delete(id);
    }
    draft.outgoing.clear();
    draft.autoLeave = false;
    return finish(draft);
  }

  #draft(): Draft {
    const { config, progress } = this.#current;
    const copies = new Map<number, Progress>();
    for (const [id, one] of progress) copies.set(id, one.clone());
    const draft: Draft = {
      incoming: new Set(config.voters.incoming),
      outgoing: new Set(config.voters.outgoing),
      learners: new Set(config.learners),
      learnersNext: new Set(config.learnersNext),
      progress: copies,
      autoLeave: config.autoLeave,
    };
    checkInvariants(draft);
    return draft;
  }

  /** Applies the steps in order; returns the reason if they leave no voter. */
  #apply(draft: Draft, changes: readonly ConfChangeSingle[]): string | undefined {
    for (const { type, nodeId } of changes) {
      if (nodeId === 0) continue;
      if (type === "addNode") this.#makeVoter(draft, nodeId);
      if (type === "addLearnerNode") this.#makeLearner(draft, nodeId);
      if (type === "removeNode") remove(draft, nodeId);
    }
    return draft.incoming.size === 0 ? "removed all voters" : undefined;
  }

  #makeVoter(draft: Draft, id: number): void {
    const progress = draft.progress.get(id);
    if (progress) progress.isLearner = false;
    else draft.progress.set(id, this.#newProgress(false));
    draft.learners.delete(id);
    draft.learnersNext.delete(id);
    draft.incoming.add(id);
  }

  #makeLearner(draft: Draft, id: number): void {
    const progress = draft.progress.get(id);
    if (!progress) {
      draft.progress.set(id, this.#newProgress(true));
      draft.learners.add(id);
      return;
    }
    if (progress.isLearner) return;
    remove(draft, id);
    draft.progress.set(id, progress);
    // A voter of the outgoing half keeps its vote until the joint configuration is left.
    if (draft.outgoing.has(id)) {
      draft.learnersNext.add(id);
      return;
    }
    progress.isLearner = true;
    draft.learners.add(id);
  }

  /**
   * A new member is probed from the end of the log, and counts as active until the next quorum
   * check.
   */
  #newProgress(isLearner: boolean): Progress {
    return new Progress({
      match: 0,
      next: Math.max(this.#options.lastIndex, 1),
      inflights: this.#options.newInflights(),
      isLearner,
      recentActive: true,
    });
  }
}

/** The configuration that a ConfState describes, built from equivalent change steps. */
export function restoreConfig(
  start: TrackedConfig,
  state: ConfState,
  options: ChangerOptions,
): ChangeResult {
  const add = (nodeId: number): ConfChangeSingle => ({ type: "addNode", nodeId });
  const remove = (nodeId: number): ConfChangeSingle => ({ type: "removeNode", nodeId });
  const learn = (nodeId: number): ConfChangeSingle => ({ type: "addLearnerNode", nodeId });
  const incoming = [
    ...state.votersOutgoing.map(remove),
    ...state.voters.map(add),
    ...state.learners.map(learn),
    ...state.learnersNext.map(learn),
  ];
  const isJoint = state.votersOutgoing.length > 0;
  let current = start;
  for (const step of isJoint ? state.votersOutgoing.map(add) : incoming) {
    const result = new Changer(current, options).simple([step]);
    if (!result.ok) return result;
    current = result.next;
  }
  if (!isJoint) return { ok: true, next: current };
  return new Changer(current, options).enterJoint(incoming, state.autoLeave);
}

function remove(draft: Draft, id: number): void {
  draft.incoming.delete(id);
  draft.learners.delete(id);
  draft.learnersNext.delete(id);
  if (!draft.outgoing.has(id)) draft.progress.delete(id);
}

function refuse(error: string): ChangeResult {
  return { ok: false, error };
}

function finish(draft: Draft): ChangeResult {
  checkInvariants(draft);
  const { incoming, outgoing, learners, learnersNext, autoLeave, progress } = draft;
  const config = { voters: { incoming, outgoing }, learners, learnersNext, autoLeave };
  return { ok: true, next: { config, progress } };
}

function checkInvariants(draft: Draft): void {
  const { incoming, outgoing, learners, learnersNext, progress } = draft;
  for (const id of [...incoming, ...outgoing, ...learners, ...learnersNext]) {
    invariant(progress.has(id), () => `member ${id} has no progress`);
  }
  for (const id of learnersNext) {
    invariant(outgoing.has(id), () => `${id} waits to be a learner but is not an outgoing voter`);
    invariant(!progress.get(id)?.isLearner, () => `${id} waits to be a learner but is one`);
  }
  for (const id of learners) {
    invariant(!outgoing.has(id) && !incoming.has(id), () => `${id} is both learner and voter`);
    invariant(progress.get(id)?.isLearner === true, () => `learner ${id} is not marked as one`);
  }
  if (outgoing.size === 0) {
    invariant(learnersNext.size === 0, () => "learners wait for a configuration that is not joint");
    invariant(!draft.autoLeave, () => "auto leave is set on a configuration that is not joint");
  }
}
