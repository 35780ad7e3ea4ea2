import { removedFrom } from "../apply.ts";
import { ACCEPTED, type ControlReply, refuse } from "../command.ts";
import type { ControlState } from "../state.ts";
import type { WebhookCommand } from "./webhook-records.ts";

export const MAX_WAITING_DELIVERIES = 256;
const MAX_FAILED = 256;
const MAX_WEBHOOKS = 100;
const TYPES: ReadonlySet<string> = new Set([
  "webhook.set",
  "webhook.remove",
  "webhook.progress",
  "webhook.retry",
]);

type WebhookState = Pick<ControlState, "cluster" | "webhooks" | "webhookProgress">;

export function isWebhookCommand(command: { readonly type: string }): command is WebhookCommand {
  return TYPES.has(command.type);
}

/** Deterministic; a new webhook begins with the next event. */
export function changeWebhook(state: WebhookState, command: WebhookCommand): ControlReply {
  const { webhooks, webhookProgress, cluster } = state;
  const { id } = command;
  const progress = webhookProgress.get(id);
  if (command.type === "webhook.set") {
    if (!progress && webhooks.size >= MAX_WEBHOOKS) {
      return refuse("conflict", `the cluster has ${MAX_WEBHOOKS} webhooks`);
    }
    webhooks.set(id, command.webhook);
    const next = (cluster.get("events") as number | undefined) ?? 0;
    if (!progress) {
      webhookProgress.set(id, { revision: 0, next, waiting: [], failed: [] });
    }
    return ACCEPTED;
  }
  if (!progress) return refuse("not_found", `no webhook has the id ${id}`);
  switch (command.type) {
    case "webhook.remove": {
      const project = webhooks.get(id)?.project;
      webhooks.delete(id);
      webhookProgress.delete(id);
      return removedFrom(state, project);
    }
    case "webhook.progress": {
      const { failed, revision } = command.progress;
      if (revision !== progress.revision + 1) {
        return refuse("conflict", `the webhook ${id} has changed; read it again`);
      }
      webhookProgress.set(id, { ...command.progress, failed: failed.slice(-MAX_FAILED) });
      return ACCEPTED;
    }
    case "webhook.retry": {
      const room = MAX_WAITING_DELIVERIES - progress.waiting.length;
      const again = progress.failed.slice(0, room);
      const due = again.map(({ sequence }) => ({ sequence, attempts: 0, atMs: command.atMs }));
      const failed = progress.failed.slice(again.length);
      const waiting = progress.waiting.concat(due);
      webhookProgress.set(id, { ...progress, revision: progress.revision + 1, waiting, failed });
      return ACCEPTED;
    }
    default:
      return command satisfies never;
  }
}
