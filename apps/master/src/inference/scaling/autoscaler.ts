import type { Clock } from "@heddle/base/clock";
import { toAppError } from "@heddle/base/errors";
import type { ReplicaStatus } from "@heddle/contracts/engine";
import type { DeploymentRecord } from "@heddle/control/state";
import type { Log } from "@heddle/observability/logger";
import {
  decideReplicas,
  isIdle,
  isPressed,
  isRelaxed,
  type ReplicaDecision,
  type ScalingTargets,
  type ServingLoad,
} from "@heddle/scheduler/serving/replica-count";
import { isActiveLeader } from "../../control-plane/active-leader.ts";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import type { NodeDirectory } from "../../nodes/node-directory.ts";
import type { DispatchLoad, InferenceDispatch } from "../dispatch/inference-port.ts";

const PERIOD_MS = 250;

/** Since when something holds for a deployment, by this master's monotonic clock. */
interface History {
  pressedMs: number | undefined;
  relaxedMs: number | undefined;
  idleMs: number | undefined;
  /** Tokens over all replicas: they show calls that began and ended between two checks. */
  tokens: number;
  /** The number of replicas at the last check: another master may have raised it for its own calls. */
  replicas: number;
  isProposing: boolean;
}

interface AutoscalerParts {
  readonly control: ControlPlane;
  readonly dispatch: Pick<InferenceDispatch, "loadOf">;
  readonly directory: Pick<NodeDirectory, "replicasOf">;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Lets the number of replicas follow the load. Every master asks for more by its own queue; only
 * the leader asks for fewer. Of two that ask at once one is refused.
 */
export class Autoscaler {
  readonly #parts: AutoscalerParts;
  readonly #timer: NodeJS.Timeout;
  readonly #histories = new Map<string, History>();

  constructor(parts: AutoscalerParts) {
    this.#parts = parts;
    this.#timer = setInterval(() => this.#check(), PERIOD_MS);
    this.#timer.unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #check(): void {
    const { deployments } = this.#parts.control.state;
    for (const key of this.#histories.keys()) {
      if (!deployments.get(key)?.scaling) this.#histories.delete(key);
    }
    for (const [key, record] of deployments) {
      if (record.scaling && typeof record.replicas === "number") {
        this.#consider(key, record, record.scaling, record.replicas);
      }
    }
  }

  #consider(
    key: string,
    { scaledAtMs = 0 }: DeploymentRecord,
    targets: ScalingTargets,
    replicas: number,
  ): void {
    const { control, clock, dispatch, directory } = this.#parts;
    const states = directory.replicasOf(key);
    const load = servingLoad(replicas, states, dispatch.loadOf(key));
    const history = this.#historyOf(key);
    const nowMs = clock.monotonicMs();
    const tokens = tokensOf(states);
    const isUnchanged = tokens === history.tokens && replicas === history.replicas;
    const isQuiet = isIdle(load) && isUnchanged && !states.some(isStarting);
    Object.assign(history, { tokens, replicas });
    history.pressedMs = since(isPressed(load, targets), history.pressedMs, nowMs);
    history.relaxedMs = since(isRelaxed(load, targets), history.relaxedMs, nowMs);
    history.idleMs = since(isQuiet, history.idleMs, nowMs);
    if (history.isProposing) return;
    const decision = decideReplicas(load, targets, {
      pressedMs: nowMs - (history.pressedMs ?? nowMs),
      relaxedMs: nowMs - (history.relaxedMs ?? nowMs),
      idleMs: nowMs - (history.idleMs ?? nowMs),
      sinceChangeMs: clock.wallMs() - scaledAtMs,
    });
    if (!decision || (decision.replicas < replicas && !isActiveLeader(control))) return;
    void this.#scale(key, replicas, decision, history);
  }

  #historyOf(key: string): History {
    let history = this.#histories.get(key);
    if (!history) {
      history = {
        pressedMs: undefined,
        relaxedMs: undefined,
        idleMs: undefined,
        tokens: 0,
        replicas: 0,
        isProposing: false,
      };
      this.#histories.set(key, history);
    }
    return history;
  }

  async #scale(
    deployment: string,
    from: number,
    { replicas, reason }: ReplicaDecision,
    history: History,
  ): Promise<void> {
    const { control, clock, log } = this.#parts;
    history.isProposing = true;
    const atMs = clock.wallMs();
    const change = { deployment, from, replicas, reason };
    try {
      await propose(control, { type: "deployment.scale", atMs, ...change });
      log.info(change, "the number of replicas follows the load");
    } catch (error) {
      // Another master was faster, or there is no leader: the next check shows.
      const { message } = toAppError(error);
      log.warn({ ...change, error: message }, "the number of replicas was not changed");
    } finally {
      Object.assign(history, { pressedMs: undefined, relaxedMs: undefined, isProposing: false });
    }
  }
}

function since(holds: boolean, before: number | undefined, nowMs: number): number | undefined {
  return holds ? (before ?? nowMs) : undefined;
}

function servingLoad(
  replicas: number,
  states: readonly ReplicaStatus[],
  { queued, ttftMs }: DispatchLoad,
): ServingLoad {
  let [ready, running, slots] = [0, 0, 0];
  for (const { phase, load } of states) {
    running += load.running + load.waiting;
    if (phase !== "ready") continue;
    ready += 1;
    slots += load.maxSequences;
  }
  return { replicas, ready, queued, running, slots: slots / Math.max(1, ready) || 1, ttftMs };
}

/** The calls that it starts for wait at a master, which may be another. */
function isStarting({ phase }: ReplicaStatus): boolean {
  return phase === "pulling" || phase === "loading";
}

function tokensOf(states: readonly ReplicaStatus[]): number {
  return states.reduce((sum, { load }) => sum + load.promptTokens + load.generatedTokens, 0);
}
