import { Chat } from "./resources/chat.ts";
import { Cluster } from "./resources/cluster.ts";
import { Completions } from "./resources/completions.ts";
import { Conversations } from "./resources/conversations.ts";
import { Embeddings } from "./resources/embeddings.ts";
import { Events } from "./resources/events.ts";
import { Files } from "./resources/inference/files.ts";
import { Jobs } from "./resources/jobs.ts";
import { Keys } from "./resources/keys.ts";
import { Messages } from "./resources/messages.ts";
import { Models } from "./resources/models.ts";
import { Projects } from "./resources/projects.ts";
import { Queues } from "./resources/queues.ts";
import { Moderations, Rerank } from "./resources/rerank.ts";
import { Responses } from "./resources/responses.ts";
import { Settings } from "./resources/settings.ts";
import { Tokens } from "./resources/tokens.ts";
import { Workers } from "./resources/workers.ts";
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
  readonly workers: Workers;
  readonly queues: Queues;
  readonly projects: Projects;
  readonly events: Events;
  readonly cluster: Cluster;
  readonly settings: Settings;
  readonly keys: Keys;
  readonly models: Models;
  readonly chat: Chat;
  readonly completions: Completions;
  readonly embeddings: Embeddings;
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
    this.workers = new Workers(transport);
    this.queues = new Queues(transport);
    this.projects = new Projects(transport);
    this.events = new Events(transport);
    this.cluster = new Cluster(transport);
    this.settings = new Settings(transport);
    this.keys = new Keys(transport);
    this.models = new Models(transport);
    this.chat = new Chat(transport);
    this.completions = new Completions(transport);
    this.embeddings = new Embeddings(transport);
    this.files = new Files(transport);
    this.messages = new Messages(transport);
    this.moderations = new Moderations(transport);
    this.rerank = new Rerank(transport);
    this.responses = new Responses(transport);
    this.conversations = new Conversations(transport);
    this.tokens = new Tokens(transport);
  }
}
