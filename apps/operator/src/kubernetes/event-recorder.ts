import { createHash } from "node:crypto";
import type { Log } from "@heddle/observability/logger";
import { CoreV1Api, type KubeConfig } from "@kubernetes/client-node";
import type { CustomResource, ResourceStatus } from "./custom-resource.ts";
import { apiFaultText, OPERATOR } from "./resource-api.ts";

const MAX_MESSAGE = 1_000;

/** Writes Kubernetes' events, which `kubectl describe` shows. Without them nothing else fails. */
export class EventRecorder {
  readonly #api: CoreV1Api;
  readonly #log: Log;

  constructor(config: KubeConfig, log: Log) {
    this.#api = config.makeApiClient(CoreV1Api);
    this.#log = log;
  }

  async record(
    object: CustomResource<unknown, ResourceStatus>,
    type: "Normal" | "Warning",
    reason: string,
    message: string,
  ): Promise<void> {
    const { apiVersion, kind, metadata } = object;
    const { namespace, name, uid, resourceVersion } = metadata;
    const now = new Date();
    const text = message.slice(0, MAX_MESSAGE);
    // The same event of the same version has the same name: a repeated reconcile writes it once.
    const id = createHash("sha256").update(`${resourceVersion} ${reason} ${text}`).digest("hex");
    const body = {
      metadata: { name: `${name.slice(0, 230)}.${id.slice(0, 16)}`, namespace },
      involvedObject: { apiVersion, kind, namespace, name, uid, resourceVersion },
      type,
      reason,
      message: text,
      source: { component: OPERATOR },
      reportingComponent: OPERATOR,
      firstTimestamp: now,
      lastTimestamp: now,
      count: 1,
    };
    try {
      await this.#api.createNamespacedEvent({ namespace, body });
    } catch (error) {
      this.#log.warn({ name, reason, why: apiFaultText(error) }, "an event was not written");
    }
  }
}
