import type { Logger } from "@heddle/observability/logger";
import { ReadMetric } from "@heddle/observability/read-metric";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import {
  Global,
  Inject,
  Module,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
} from "@nestjs/common";
import { Registry } from "prom-client";
import { LOGGER } from "../../config/config.module.ts";
import { CREDENTIALS } from "../control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane.ts";
import { MasterPeers } from "../master-peers.ts";
import { CheckpointSigner } from "./checkpoint-signer.ts";
import { EventCatchUp } from "./event-catch-up.ts";
import { EventEntriesController } from "./event-entries.controller.ts";

/** The event log of this master: what it lacks, its checkpoints, and what others read of it. */
@Global()
@Module({ controllers: [EventEntriesController] })
export class EventLogModule implements OnApplicationBootstrap, OnApplicationShutdown {
  readonly #catchUp: EventCatchUp | undefined;
  readonly #signer: CheckpointSigner | undefined;
  readonly #peers: MasterPeers;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(CREDENTIALS) credentials: NodeCredentials,
    @Inject(LOGGER) log: Logger,
    @Inject(Registry) registry: Registry,
  ) {
    const { events } = control;
    this.#peers = new MasterPeers(control, credentials);
    if (!events) return;
    const catchUp = new EventCatchUp({ control, events, peers: this.#peers, log });
    this.#catchUp = catchUp;
    this.#signer = new CheckpointSigner(control, events, log);
    const figures = [
      ["_total", "counter", "Events of the event log.", () => events.store.size],
      ["_missing", "gauge", "Events that this master lacks.", () => events.missing],
      ["_fetched_total", "counter", "Events fetched from others.", () => catchUp.fetched],
    ] as const;
    for (const [suffix, type, help, read] of figures) {
      new ReadMetric(registry, { name: `heddle_events${suffix}`, type, help }, () => [
        { labels: {}, value: read() },
      ]);
    }
  }

  onApplicationBootstrap(): void {
    this.#catchUp?.check();
    void this.#catchUp?.run();
    void this.#signer?.run();
  }

  onApplicationShutdown(): void {
    this.#catchUp?.close();
    this.#signer?.close();
    this.#peers.close();
  }
}
