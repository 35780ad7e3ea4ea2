import { Access, RoleBindings, Roles, ServiceAccounts } from "./resources/cluster/access.ts";
import { Cluster } from "./resources/cluster/cluster.ts";
import { Events } from "./resources/cluster/events.ts";
import { Keys } from "./resources/cluster/keys.ts";
import { LimitsResource } from "./resources/cluster/limits.ts";
import { Models } from "./resources/cluster/models.ts";
import { Plugins } from "./resources/cluster/plugins.ts";
import { Projects } from "./resources/cluster/projects.ts";
import { Queues } from "./resources/cluster/queues.ts";
import { SecretsResource } from "./resources/cluster/secrets.ts";
import { Settings } from "./resources/cluster/settings.ts";
import { UsageResource } from "./resources/cluster/usage.ts";
import { Webhooks } from "./resources/cluster/webhooks.ts";
import { Workers } from "./resources/cluster/workers.ts";
import { Batches } from "./resources/inference/batches.ts";
import { Chat } from "./resources/inference/chat.ts";
import { Completions } from "./resources/inference/completions.ts";
import { Conversations } from "./resources/inference/conversations.ts";
import { Embeddings } from "./resources/inference/embeddings.ts";
import { Files } from "./resources/inference/files.ts";
import { Messages } from "./resources/inference/messages.ts";
import { Moderations, Rerank } from "./resources/inference/rerank.ts";
import { Responses } from "./resources/inference/responses.ts";
import { Tokens } from "./resources/inference/tokens.ts";
import { Jobs } from "./resources/jobs/jobs.ts";
import { Pipelines } from "./resources/jobs/pipelines.ts";
import { type HeddleOptions, HttpTransport } from "./transport.ts";

/**
 * A cluster, as programs see it:
 *
 *     const heddle = new Heddle({ endpoint: "http://127.0.0.1:8080", auth_token: key });
 *     const { job_id } = await heddle.jobs.create({ name: "hello", command: "echo hello" });
 *     for await (const { phase } of heddle.jobs.stream(job_id)) console.log(phase);
 */
export class Heddle {
  readonly jobs: Jobs;
  readonly pipelines: Pipelines;
  readonly workers: Workers;
  readonly queues: Queues;
  readonly projects: Projects;
  readonly events: Events;
  readonly webhooks: Webhooks;
  readonly cluster: Cluster;
  readonly secrets: SecretsResource;
  readonly settings: Settings;
  readonly plugins: Plugins;
  readonly keys: Keys;
  readonly roles: Roles;
  readonly serviceAccounts: ServiceAccounts;
  readonly bindings: RoleBindings;
  readonly access: Access;
  readonly limits: LimitsResource;
  readonly usage: UsageResource;
  readonly models: Models;
  readonly chat: Chat;
  readonly completions: Completions;
  readonly embeddings: Embeddings;
  readonly batches: Batches;
  readonly files: Files;
  readonly messages: Messages;
  readonly moderations: Moderations;
  readonly rerank: Rerank;
  readonly responses: Responses;
  readonly conversations: Conversations;
  readonly tokens: Tokens;

  constructor(options: HeddleOptions) {
    const transport = new HttpTransport(options);
    this.jobs = new Jobs(transport);
    this.pipelines = new Pipelines(transport);
    this.workers = new Workers(transport);
    this.queues = new Queues(transport);
    this.projects = new Projects(transport);
    this.events = new Events(transport);
    this.webhooks = new Webhooks(transport);
    this.cluster = new Cluster(transport);
    this.secrets = new SecretsResource(transport);
    this.settings = new Settings(transport);
    this.plugins = new Plugins(transport);
    this.keys = new Keys(transport);
    this.roles = new Roles(transport);
    this.serviceAccounts = new ServiceAccounts(transport);
    this.bindings = new RoleBindings(transport);
    this.access = new Access(transport);
    this.limits = new LimitsResource(transport);
    this.usage = new UsageResource(transport);
    this.models = new Models(transport);
    this.chat = new Chat(transport);
    this.completions = new Completions(transport);
    this.embeddings = new Embeddings(transport);
    this.batches = new Batches(transport);
    this.files = new Files(transport);
    this.messages = new Messages(transport);
    this.moderations = new Moderations(transport);
    this.rerank = new Rerank(transport);
    this.responses = new Responses(transport);
    this.conversations = new Conversations(transport);
    this.tokens = new Tokens(transport);
  }
}
