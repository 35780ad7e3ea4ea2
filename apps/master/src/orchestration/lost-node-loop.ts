import { systemClock } from "@heddle/base/clock";
import type { Logger } from "@heddle/observability/logger";
import { Inject, type OnApplicationBootstrap, type OnApplicationShutdown } from "@nestjs/common";
import { LOGGER, MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { isActiveLeader } from "../control-plane/active-leader.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { NODE_DIRECTORY, type NodeDirectory } from "../nodes/node-directory.ts";
import { NodeWatch } from "../nodes/node-watch.ts";
import { ServerWatch, serverLostMs } from "../nodes/server-watch.ts";

/** Between two checks; more where one takes long, up to the second value. */
const WATCH_MS = { least: 250, most: 1_000 };
/** Checks may take this share of the time. */
const WATCH_SHARE = 1 / 32;
/** The leader's regular check for nodes that are lost or have returned. */
export class LostNodeLoop implements OnApplicationBootstrap, OnApplicationShutdown {
  readonly #control: ControlPlane;
  readonly #log: Logger;
  readonly #nodes: NodeWatch;
  readonly #servers: ServerWatch;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(NODE_DIRECTORY) directory: NodeDirectory,
    @Inject(LOGGER) log: Logger,
    @Inject(MASTER_CONFIG) { jobTimes, fixedTimes }: Pick<MasterConfig, "jobTimes" | "fixedTimes">,
  ) {
    this.#control = control;
    this.#log = log;
    const { nodeLostMs, leaseMs } = jobTimes;
    const parts = { control, directory, clock: systemClock, log };
    this.#nodes = new NodeWatch({ ...parts, nodeLostMs, leaseMs });
    const lostMs = serverLostMs(nodeLostMs, fixedTimes.nodeHeartbeatMs);
    this.#servers = new ServerWatch({ ...parts, serverLostMs: lostMs });
  }

  onApplicationBootstrap(): void {
    this.#checkIn(WATCH_MS.least);
  }

  onApplicationShutdown(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  #checkIn(ms: number): void {
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => void this.#checkAndSchedule(), ms).unref();
  }

  async #checkAndSchedule(): Promise<void> {
    const beganMs = systemClock.monotonicMs();
    await this.#check();
    const tookMs = systemClock.monotonicMs() - beganMs;
    const { least, most } = WATCH_MS;
    this.#checkIn(Math.min(most, Math.max(least, tookMs / WATCH_SHARE)));
  }

  async #check(): Promise<void> {
    if (!isActiveLeader(this.#control)) {
      this.#nodes.reset();
      this.#servers.reset();
      return;
    }
    try {
      await Promise.all([this.#nodes.check(), this.#servers.check()]);
    } catch (error) {
      this.#log.warn({ err: String(error) }, "watching nodes: tried again");
    }
  }
}
