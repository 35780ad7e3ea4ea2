import { accessOperations, bindingOperations } from "./access/bindings.ts";
import { roleOperations } from "./access/roles.ts";
import { secretOperations } from "./access/secrets.ts";
import { serviceOperations } from "./access/service-accounts.ts";
import { signInOperations } from "./access/sign-in.ts";
import { chatOperations } from "./chat.ts";
import { clusterOperations } from "./cluster.ts";
import { completionOperations } from "./completions.ts";
import { embeddingOperations } from "./embeddings.ts";
import { eventLogOperations } from "./events/log.ts";
import { webhookOperations } from "./events/webhooks.ts";
import { eventOperations } from "./events.ts";
import { healthOperations } from "./health.ts";
import { historyOperations } from "./history/state.ts";
import { batchOperations } from "./inference/batches.ts";
import { fileOperations } from "./inference/files.ts";
import { messageOperations } from "./inference/messages.ts";
import { moderationOperations } from "./inference/moderations.ts";
import { rerankOperations } from "./inference/rerank.ts";
import { tokenOperations } from "./inference/tokens.ts";
import { jobOperations } from "./job-operations.ts";
import { keyOperations } from "./keys.ts";
import { limitOperations } from "./limits/limits.ts";
import { usageOperations } from "./limits/usage.ts";
import { modelOperations } from "./models.ts";
import type { ApiOperation } from "./operation.ts";
import { pipelineOperations } from "./pipelines/operations.ts";
import { pluginOperations } from "./plugins/plugins.ts";
import { projectOperations } from "./projects.ts";
import { queueOperations } from "./queues.ts";
import { conversationOperations } from "./responses/conversations.ts";
import { responseOperations } from "./responses/operations.ts";
import { settingOperations } from "./settings.ts";
import { workerOperations } from "./workers.ts";

/** Every operation of the HTTP API, by subject. */
export const OPERATIONS: Readonly<Record<string, Readonly<Record<string, ApiOperation>>>> = {
  chat: chatOperations,
  completions: completionOperations,
  embeddings: embeddingOperations,
  messages: messageOperations,
  moderations: moderationOperations,
  rerank: rerankOperations,
  responses: responseOperations,
  conversations: conversationOperations,
  files: fileOperations,
  batches: batchOperations,
  tokens: tokenOperations,
  models: modelOperations,
  jobs: jobOperations,
  pipelines: pipelineOperations,
  events: eventOperations,
  eventLog: eventLogOperations,
  webhooks: webhookOperations,
  projects: projectOperations,
  queues: queueOperations,
  secrets: secretOperations,
  workers: workerOperations,
  keys: keyOperations,
  roles: roleOperations,
  serviceAccounts: serviceOperations,
  bindings: bindingOperations,
  access: accessOperations,
  signIn: signInOperations,
  limits: limitOperations,
  usage: usageOperations,
  cluster: clusterOperations,
  history: historyOperations,
  plugins: pluginOperations,
  settings: settingOperations,
  health: healthOperations,
};

/** Follow OpenAI's contract: unknown fields are ignored, and errors have its format. */
const INFERENCE_SUBJECTS: ReadonlySet<string> = new Set([
  "batches",
  "chat",
  "completions",
  "embeddings",
  "files",
  "messages",
  "models",
  "moderations",
  "rerank",
  "responses",
  "conversations",
  "tokens",
]);
const API_ROOT = /^\/api\/v1\/([^/?]+)/;

/** The routes of plugins lie below it, each under its plugin's name. */
export const PLUGIN_ROUTES = "/api/v1/custom";

const orchestrationRoots = new Set(
  Object.entries(OPERATIONS)
    .filter(([subject]) => !INFERENCE_SUBJECTS.has(subject))
    .flatMap(([, operations]) => Object.values(operations))
    .map(({ path }) => path)
    .concat(PLUGIN_ROUTES)
    .flatMap((path) => API_ROOT.exec(path)?.[1] ?? []),
);

/** Which errors an API answers with: RFC 9457's problems, OpenAI's or Anthropic's. */
type ErrorFormat = "problem" | "openai" | "anthropic";

export function errorFormatOf(path: string): ErrorFormat {
  if (isOrchestration(path)) return "problem";
  return API_ROOT.exec(path)?.[1] === "messages" ? "anthropic" : "openai";
}

/**
 * Whether the path belongs to the orchestration API, which answers with RFC 9457. All others use
 * OpenAI's envelope, also unknown ones, because their callers use an OpenAI SDK.
 */
export function isOrchestration(path: string): boolean {
  return orchestrationRoots.has(API_ROOT.exec(path)?.[1] ?? "");
}
