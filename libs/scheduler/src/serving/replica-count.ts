/** What an operator wants of the number of replicas. */
export interface ScalingTargets {
  readonly min: number;
  readonly max: number;
  /** Without calls for as long, the last replicas go; only with a `min` of 0. */
  readonly idleMs?: number | undefined;
  /** Waiting calls for each ready replica, above which there are more. */
  readonly targetQueue: number;
  /** The time to the first token, above which there are more. */
  readonly targetTtftMs: number;
  /** The pause after a change. */
  readonly coolDownMs: number;
}

/** The load of a deployment now. */
export interface ServingLoad {
  /** The replicas that are wanted now, and those that serve. */
  readonly replicas: number;
  readonly ready: number;
  /** Calls that wait for a replica, and sequences in the engines. */
  readonly queued: number;
  readonly running: number;
  /** Sequences that one replica runs at once. */
  readonly slots: number;
  /** A high quantile of the latest calls; undefined if there were none. */
  readonly ttftMs?: number | undefined;
}

/** For how long something has held. */
export interface ServingTimes {
  readonly pressedMs: number;
  readonly relaxedMs: number;
  readonly idleMs: number;
  readonly sinceChangeMs: number;
}

/** A number of replicas, and why. */
export interface ReplicaDecision {
  readonly replicas: number;
  readonly reason: string;
}

/** How long a load must be too high, before there are more replicas. */
const PRESSED_MS = 2_000;
/** The share of the slots of one replica less that may be in use when one goes. */
const RELAXED_SHARE = 0.6;
/** The share of the target below which the time to the first token is no reason to keep a replica. */
const RELAXED_TTFT = 0.5;

/** Whether the load is above a target. */
export function isPressed(load: ServingLoad, targets: ScalingTargets): boolean {
  const { ready, queued, running, ttftMs = 0 } = load;
  if (queued > targets.targetQueue * Math.max(1, ready)) return true;
  // One call alone would not be faster with another replica.
  return ttftMs > targets.targetTtftMs && queued + running > ready;
}

/** Whether one replica less would do, with a margin to `isPressed`. */
export function isRelaxed(load: ServingLoad, targets: ScalingTargets): boolean {
  const { replicas, queued, running, slots, ttftMs = 0 } = load;
  if (queued > 0 || replicas < 2 || isPressed(load, targets)) return false;
  const isFast = ttftMs <= RELAXED_TTFT * targets.targetTtftMs || running === 0;
  return isFast && running <= RELAXED_SHARE * slots * (replicas - 1);
}

export function isIdle({ queued, running }: ServingLoad): boolean {
  return queued === 0 && running === 0;
}

/** The number of replicas to want; undefined for the present one. */
export function decideReplicas(
  load: ServingLoad,
  targets: ScalingTargets,
  times: ServingTimes,
): ReplicaDecision | undefined {
  const { replicas, ready, queued, running, slots } = load;
  const { min, max, idleMs, coolDownMs } = targets;
  if (replicas === 0 && queued > 0) {
    return { replicas: Math.max(1, min), reason: `${queued} calls wait and no replica runs` };
  }
  if (replicas < min) return { replicas: min, reason: `the minimum is ${min}` };
  if (replicas > max) return { replicas: max, reason: `the maximum is ${max}` };
  if (replicas === 0) return undefined;
  if (min === 0 && idleMs !== undefined && isIdle(load) && times.idleMs >= idleMs) {
    return { replicas: 0, reason: `idle for ${Math.round(idleMs / 1000)} s` };
  }
  if (times.sinceChangeMs < coolDownMs) return undefined;
  if (isPressed(load, targets) && times.pressedMs >= PRESSED_MS && ready >= replicas) {
    // All slots for what is there, and at most twice as many at once.
    const needed = Math.ceil((running + queued) / Math.max(1, slots));
    const wanted = Math.min(max, Math.max(replicas + 1, Math.min(2 * replicas, needed)));
    const reason = `${queued} calls wait, first token after ${Math.round(load.ttftMs ?? 0)} ms`;
    return wanted > replicas ? { replicas: wanted, reason } : undefined;
  }
  if (isRelaxed(load, targets) && times.relaxedMs >= coolDownMs && replicas > Math.max(1, min)) {
    return { replicas: replicas - 1, reason: `${running} of ${slots * ready} slots are in use` };
  }
  return undefined;
}
