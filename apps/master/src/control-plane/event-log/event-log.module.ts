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
import { WebhookDelivery } from "./webhook-delivery.ts";
import { WebhookHosts } from "./webhook-post.ts";

/** Undefined where this master keeps no events. */
const webhookDelivery = {
  provide: WebhookDelivery,
  inject: [CONTROL_PLANE, PEPPER, WebhookHosts, LOGGER],
  useFactory: (control: ControlPlane, pepper: Uint8Array, hosts: WebhookHosts, log: Logger) =>
    control.events && new WebhookDelivery({ control, events: control.events, pepper, hosts, log }),
};

/** The event log of this master: what it lacks, its checkpoints, and what others read of it. */
@Global()
@Module({
  controllers: [EventEntriesController],
  providers: [
    {
      provide: WebhookHosts,
      inject: [MASTER_CONFIG],
      useFactory: ({ webhookHosts }: MasterConfig) => new WebhookHosts(webhookHosts),
    },
    webhookDelivery,
  ],
  exports: [WebhookHosts],
})
export class EventLogModule implements OnApplicationBootstrap, OnApplicationShutdown {
  readonly #catchUp: EventCatchUp | undefined;
  readonly #signer: CheckpointSigner | undefined;
  readonly #webhooks: WebhookDelivery | undefined;
  readonly #removal: EventRemoval | undefined;
  readonly #peers: MasterPeers;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(CREDENTIALS) credentials: NodeCredentials,
    @Inject(LOGGER) log: Logger,
    @Inject(Registry) registry: Registry,
    @Inject(WebhookDelivery) webhooks: WebhookDelivery | undefined,
  ) {
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
  }

  onApplicationShutdown(): void {
    this.#catchUp?.close();
    this.#signer?.close();
    this.#removal?.close();
    this.#webhooks?.close();
    this.#peers.close();
  }
}
