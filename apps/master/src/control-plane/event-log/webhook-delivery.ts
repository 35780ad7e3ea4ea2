import type { KeyObject } from "node:crypto";
import { abortableDelay } from "@heddle/base/async/abortable-delay";
import { toAppError } from "@heddle/base/errors";
import { MAX_WAITING_DELIVERIES } from "@heddle/control/audit/webhook-changes";
import type {
  FailedDelivery,
  WaitingDelivery,
  WebhookProgress,
  WebhookRecord,
} from "@heddle/control/audit/webhook-records";
import type { Logger } from "@heddle/observability/logger";
import { isActiveLeader } from "../active-leader.ts";
import type { ControlPlane } from "../control-plane.ts";
import { propose } from "../propose.ts";
import type { RecordedEvents } from "../recorded-events.ts";
import { opener } from "./opened-event.ts";
import { postWebhook, type WebhookHosts, webhookSecret } from "./webhook-post.ts";

const POLL_MS = 500;
/** Events that one step examines, and the most that it sends. */
const MAX_EXAMINED = 1_024;
const MAX_SENT = 64;
/** Waits before the attempts after the first one, in seconds: about three days. */
const RETRY_SECONDS = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
const MAX_MESSAGE = 200;

interface DeliveryParts {
  readonly control: ControlPlane;
  readonly events: RecordedEvents;
  readonly pepper: KeyObject;
  readonly hosts: WebhookHosts;
  readonly log: Logger;
  /** For tests. */
  readonly retrySeconds?: readonly number[];
}

/**
 * Sends events to webhooks while this master leads: each at least once, under an id that stays. What
 * is not taken waits for its next attempt while later events are sent; after the last it is given up.
 */
export class WebhookDelivery {
  readonly #parts: DeliveryParts;
  readonly #busy = new Set<string>();
  readonly #stop = new AbortController();
  /** Since the start of this process. */
  readonly counts = { sent: 0, failed: 0 };

  constructor(parts: DeliveryParts) {
    this.#parts = parts;
  }

  async run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      this.startSteps();
      await abortableDelay(POLL_MS, signal, { ref: false });
    }
  }

  close(): void {
    this.#stop.abort();
  }

  /** Begins a step of each webhook that has something to send. */
  startSteps(): void {
    const { control, log } = this.#parts;
    if (control.state.webhooks.size === 0 || !isActiveLeader(control)) return;
    for (const id of control.state.webhooks.keys()) {
      if (this.#busy.has(id)) continue;
      this.#busy.add(id);
      this.#step(id)
        .catch((error: unknown) => log.debug({ err: toAppError(error), id }, "a webhook waits"))
        .finally(() => this.#busy.delete(id));
    }
  }

  async #step(id: string): Promise<void> {
    const { control } = this.#parts;
    const webhook = control.state.webhooks.get(id);
    const before = control.state.webhookProgress.get(id);
    if (!webhook || !before) return;
    const resent = await this.#resend(id, webhook, before);
    const progress = await this.#sendNew(id, webhook, resent);
    if (progress === before) return;
    const atMs = Date.now();
    const changed = { ...progress, revision: before.revision + 1 };
    await propose(control, { type: "webhook.progress", atMs, id, progress: changed });
  }

  async #resend(
    id: string,
    webhook: WebhookRecord,
    progress: WebhookProgress,
  ): Promise<WebhookProgress> {
    const isDue = ({ atMs }: WaitingDelivery) => atMs <= Date.now();
    const due = progress.waiting.filter(isDue).slice(0, MAX_SENT);
    if (due.length === 0) return progress;
    const waiting = progress.waiting.filter((each) => !due.includes(each));
    const failed: FailedDelivery[] = [...progress.failed];
    for (const each of due) {
      const fault = await this.#send(id, webhook, each.sequence);
      if (fault !== undefined) this.#postpone({ ...each, fault }, waiting, failed);
    }
    return { ...progress, waiting, failed };
  }

  async #sendNew(
    id: string,
    webhook: WebhookRecord,
    progress: WebhookProgress,
  ): Promise<WebhookProgress> {
    const { store } = this.#parts.events;
    const waiting = [...progress.waiting];
    const failed = [...progress.failed];
    const { first } = store;
    let next = Math.max(progress.next, first);
    if (progress.next < first) {
      const message = `events ${progress.next} to ${first - 1} were removed before they were sent`;
      failed.push({ sequence: progress.next, attempts: 0, message });
    }
    const end = Math.min(store.size, next + MAX_EXAMINED);
    for (let sent = 0; next < end && sent < MAX_SENT; next++) {
      if (waiting.length >= MAX_WAITING_DELIVERIES) break;
      const text = await this.#textOf(next);
      if (!isWanted(text, webhook)) continue;
      sent++;
      const fault = await this.#send(id, webhook, next, text);
      if (fault === undefined) continue;
      this.#postpone({ sequence: next++, attempts: 0, fault }, waiting, failed);
      // A receiver that is down is asked once a step.
      break;
    }
    return next === progress.next ? progress : { ...progress, next, waiting, failed };
  }

  #postpone(
    of: { readonly sequence: number; readonly attempts: number; readonly fault: string },
    waiting: WaitingDelivery[],
    failed: FailedDelivery[],
  ): void {
    const { retrySeconds = RETRY_SECONDS } = this.#parts;
    const { sequence, fault } = of;
    const attempts = of.attempts + 1;
    const seconds = retrySeconds[attempts - 1];
    this.counts.failed++;
    if (seconds === undefined) failed.push({ sequence, attempts, message: fault });
    // Receivers that were down together are not asked together.
    else
      waiting.push({
        sequence,
        attempts,
        atMs: Date.now() + seconds * (1_000 + Math.random() * 100),
      });
  }

  /** Why it was not taken; undefined if it was. */
  async #send(id: string, webhook: WebhookRecord, sequence: number, known?: string) {
    const { pepper, hosts, events } = this.#parts;
    const atMs = Date.now();
    const numbers = [webhook.secret];
    if ((webhook.overlapUntilMs ?? 0) > atMs) numbers.push(webhook.secret - 1);
    const secrets = numbers.map((number) => webhookSecret(pepper, id, number));
    try {
      // One that was removed meanwhile is given up like others.
      const body = known ?? (await this.#textOf(sequence));
      const message = { id: `${events.origin}/${sequence}`, atMs, body, secrets };
      await postWebhook(new URL(webhook.url), message, hosts);
      this.counts.sent++;
      return undefined;
    } catch (error) {
      return toAppError(error).message.slice(0, MAX_MESSAGE);
    }
  }

  async #textOf(sequence: number): Promise<string> {
    const { events, control } = this.#parts;
    const { entries } = await events.store.read(sequence, 1);
    return opener(control.state, events)(entries[0] ?? Buffer.alloc(0), sequence).text;
  }
}

function isWanted(text: string, { types, project }: WebhookRecord): boolean {
  if (types.length === 0 && project === undefined) return true;
  const event = JSON.parse(text) as { readonly type: string; readonly project?: string };
  const isOfType = types.length === 0 || types.includes(event.type);
  return isOfType && (project === undefined || project === event.project);
}
