import type { KeyObject } from "node:crypto";
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
import { LOGGER, MASTER_CONFIG } from "../../config/config.module.ts";
import type { MasterConfig } from "../../config/config.ts";
import { CREDENTIALS, PEPPER } from "../control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane.ts";
import { MasterPeers } from "../master-peers.ts";
import { CheckpointSigner } from "./checkpoint-signer.ts";
import { EventCatchUp } from "./event-catch-up.ts";
import { EventEntriesController } from "./event-entries.controller.ts";
import { EventRemoval } from "./event-removal.ts";
import { openSinks } from "./sinks/open-sinks.ts";
import { SinkDelivery } from "./sinks/sink-delivery.ts";
import { WebhookDelivery } from "./webhook-delivery.ts";
import { WebhookHosts } from "./webhook-post.ts";

/** Undefined where this master keeps no events. */
const webhookDelivery = {
  provide: WebhookDelivery,
  inject: [CONTROL_PLANE, PEPPER, WebhookHosts, LOGGER],
  useFactory: (control: ControlPlane, pepper: KeyObject, hosts: WebhookHosts, log: Logger) =>
    control.events && new WebhookDelivery({ control, events: control.events, pepper, hosts, log }),
};

const SINKS = Symbol("event sinks");

const sinkDeliveries = {
  provide: SINKS,
  inject: [CONTROL_PLANE, MASTER_CONFIG, LOGGER],
  useFactory: (control: ControlPlane, { eventSinks }: MasterConfig, log: Logger) => {
    const { events } = control;
    if (!events) return [];
    const sinks = openSinks(eventSinks, events.origin);
    return sinks.map((sink) => new SinkDelivery({ control, events, sink, log }));
  },
};

/** The event log of this master: what it lacks, its checkpoints, and what others read of it. */
@Global()
@Module({
  controllers: [EventEntriesController],
  providers: [
    {
      provide: WebhookHosts,
      inject: [MASTER_CONFIG],
      useFactory: (config: MasterConfig) => new WebhookHosts(() => config.webhookHosts),
    },
    webhookDelivery,
    sinkDeliveries,
  ],
  exports: [WebhookHosts],
})
export class EventLogModule implements OnApplicationBootstrap, OnApplicationShutdown {
  readonly #catchUp: EventCatchUp | undefined;
  readonly #signer: CheckpointSigner | undefined;
  readonly #webhooks: WebhookDelivery | undefined;
  readonly #removal: EventRemoval | undefined;
  readonly #sinks: readonly SinkDelivery[];
  readonly #peers: MasterPeers;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(CREDENTIALS) credentials: NodeCredentials,
    @Inject(LOGGER) log: Logger,
    @Inject(Registry) registry: Registry,
    @Inject(WebhookDelivery) webhooks: WebhookDelivery | undefined,
    @Inject(SINKS) sinks: readonly SinkDelivery[],
  ) {
    this.#sinks = sinks;
    const { events } = control;
    this.#peers = new MasterPeers(control, credentials);
    this.#webhooks = webhooks;
    if (!events || !webhooks) return;
    const catchUp = new EventCatchUp({ control, events, peers: this.#peers, log });
    this.#catchUp = catchUp;
    this.#signer = new CheckpointSigner(control, events, log);
    this.#removal = new EventRemoval({ control, events, log });
    const figures = [
      ["_total", "counter", "Events of the event log.", () => events.store.size],
      ["_removed_total", "counter", "Events that are not kept.", () => events.store.first],
      ["_missing", "gauge", "Events that this master lacks.", () => events.missing],
      ["_fetched_total", "counter", "Events fetched from others.", () => catchUp.fetched],
      ["_webhooks_sent_total", "counter", "Events taken by webhooks.", () => webhooks.counts.sent],
      ["_webhooks_failed_total", "counter", "Attempts that failed.", () => webhooks.counts.failed],
    ] as const;
    const copies = [
      ["sent", "Events copied to a sink."],
      ["failed", "Attempts to copy events that failed."],
      ["removed", "Events that were removed before they were copied."],
    ] as const;
    for (const [count, help] of copies) {
      const name = `heddle_events_sink_${count}_total`;
      new ReadMetric(registry, { name, type: "counter", help }, () =>
        sinks.map((sink) => ({ labels: { sink: sink.name }, value: sink.counts[count] })),
      );
    }
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
    void this.#removal?.run();
    void this.#webhooks?.run();
    for (const sink of this.#sinks) void sink.run();
  }

  onApplicationShutdown(): void {
    this.#catchUp?.close();
    this.#signer?.close();
    this.#removal?.close();
    this.#webhooks?.close();
    for (const sink of this.#sinks) sink.close();
    this.#peers.close();
  }
}
