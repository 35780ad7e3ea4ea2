import type { Clock } from "@heddle/base/clock";
import type { Log } from "@heddle/observability/logger";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { propose } from "../control-plane/propose.ts";
import type { NodeDirectory, NodeView } from "./node-directory.ts";
import { NodeLivenessTracker } from "./node-liveness-tracker.ts";

export interface ServerWatchOptions {
  readonly control: ControlPlane;
  readonly directory: NodeDirectory;
  readonly clock: Clock;
  readonly log: Log;
  /** Silence after which a parameter server is lost: less than its workers' timeout. */
  readonly serverLostMs: number;
}

/**
 * A parameter server is lost after this share of a worker's time: before its workers' timeout. That
 * is safe, as it cannot cause a double run.
 */
const SERVER_LOST_SHARE = 1 / 3;
/** But not before it has missed a report; where a worker's time is short, after this share of it. */
const MISSED_REPORTS = 2;
const LATEST_SHARE = 0.8;

/** The silence after which a parameter server is lost. */
export function serverLostMs(nodeLostMs: number, heartbeatMs: number): number {
  const least = Math.min(MISSED_REPORTS * heartbeatMs, LATEST_SHARE * nodeLostMs);
  return Math.max(SERVER_LOST_SHARE * nodeLostMs, least);
}

/** Reconciles the attached parameter servers with those of the state. */
export class ServerWatch {
  readonly #options: ServerWatchOptions;
  readonly #liveness: NodeLivenessTracker;

  constructor(options: ServerWatchOptions) {
    this.#options = options;
    this.#liveness = new NodeLivenessTracker(options.clock);
  }

  reset(): void {
    this.#liveness.reset();
  }

  /** One check, and the commands that follow from it. */
  async check(): Promise<void> {
    const { control, directory, clock } = this.#options;
    this.#liveness.begin();
    // Another leader may have newer reports of the others, as of a restarted process.
    const nodes = directory
      .nodes()
      .filter((view) => view.refusesLeader === undefined && this.#liveness.isLive(view));
    const servers = new Map(
      nodes.filter(({ kind }) => kind === "parameter-server").map((view) => [view.id, view]),
    );
    for (const view of servers.values()) {
      if (this.#liveness.of(view.id, view) < this.#options.serverLostMs) await this.#join(view);
    }
    const lost = this.#silent(servers);
    // If no worker reports either, the network or this master is at fault.
    const isLive = nodes.some((view) => view.kind === "worker" && view.state === "ready");
    if (lost.length === 0 || !isLive) return;
    this.#options.log.warn({ servers: lost }, "parameter servers are lost");
    await propose(control, { type: "server.lost", atMs: clock.wallMs(), serverIds: lost });
  }

  async #join({ id, name, address, incarnation }: NodeView): Promise<void> {
    const { control, clock } = this.#options;
    const known = control.state.servers.get(id);
    const isSame = known?.state === "ready" && known.incarnation === incarnation;
    if (isSame && known.address === address && known.name === name) return;
    const server = { id, name, address, incarnation };
    await propose(control, { type: "server.join", atMs: clock.wallMs(), server });
  }

  #silent(attached: ReadonlyMap<string, NodeView>): string[] {
    const { control, serverLostMs } = this.#options;
    const watched = [...control.state.servers.values()].filter(({ state }) => state === "ready");
    this.#liveness.keepOnly(new Set([...attached.keys(), ...watched.map(({ id }) => id)]));
    return watched
      .map(({ id }) => id)
      .filter((id) => this.#liveness.of(id, attached.get(id)) >= serverLostMs);
  }
}
