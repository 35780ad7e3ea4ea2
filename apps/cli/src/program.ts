import { readFileSync } from "node:fs";
import { Argument, Command, Option } from "commander";
import { addAccess } from "./access-verbs.ts";
import { addAuth, addContexts } from "./auth-verbs.ts";
import { addCluster, type Lazy } from "./cluster-verbs.ts";
import { addConfig } from "./config/config-verbs.ts";
import { addEvents, addWebhooks } from "./event-verbs.ts";
import { addBatches, addFiles } from "./file-verbs.ts";
import { addJobs } from "./job-verbs.ts";
import { addLimits, addUsage, limitFlags } from "./limit-verbs.ts";
import { addPipelines } from "./pipelines/pipeline-verbs.ts";
import { addPlugins } from "./plugin-verbs.ts";
import { addSecrets } from "./secret-verbs.ts";

/**
 * All verbs with their arguments and options. Only commander is loaded here: `lazy` loads a verb's
 * code when it runs, so `--help` starts as fast as Node.
 */
export function makeProgram(lazy: Lazy): Command {
  const program = new Command("heddle")
    .description("One control plane for serving and training language models.")
    .version(readVersion())
    .option(
      "--endpoint <url>",
      "cluster address (default: HEDDLE_ENDPOINT, the context, then the local cluster)",
    )
    .option(
      "--api-key <key>",
      "API key (default: HEDDLE_API_KEY, the context's, then the local cluster's)",
    )
    .option(
      "--ca <file>",
      "PEM file with the authority of the master's HTTPS certificate (default: HEDDLE_CA)",
    )
    .addOption(
      new Option("-o, --output <format>", "output format")
        .choices(["table", "wide", "json", "yaml", "name"])
        .default("table"),
    )
    .configureHelp({ showGlobalOptions: true })
    .exitOverride()
    .hook("preAction", (_, command) => refuseEmptyValues(command))
    .hook("preAction", (_, command) => trustGivenAuthority(command));
  addUp(program, lazy);
  addChat(program, lazy);
  addReaders(program, lazy);
  addTop(program, lazy);
  addKeys(program, lazy);
  addAuth(program, lazy);
  addContexts(program, lazy);
  addAccess(program, lazy);
  addSecrets(program, lazy);
  addLimits(program, lazy);
  addUsage(program, lazy);
  addFiles(program, lazy);
  addBatches(program, lazy);
  addCluster(program, lazy);
  addJobs(program, lazy);
  addPipelines(program, lazy);
  addEvents(program, lazy);
  addWebhooks(program, lazy);
  addPlugins(program, lazy);
  addConfig(program, lazy);
  program
    .command("completion")
    .description("print the script that completes commands in a shell")
    .addArgument(new Argument("<shell>", "shell").choices(["bash", "zsh", "fish"]))
    .action(lazy(async () => (await import("./commands/completion.ts")).printCompletion));
  hintAtHelp(program, program.name());
  return program;
}

/** Before a command's first call. */
async function trustGivenAuthority(command: Command): Promise<void> {
  const { ca } = command.optsWithGlobals<{ ca?: string }>();
  const file = ca ?? process.env["HEDDLE_CA"];
  if (!file) return;
  const { trustAuthority } = await import("./http/trusted-authority.ts");
  trustAuthority(file, ca === undefined ? "HEDDLE_CA" : "--ca");
}

/** After an error in its arguments each command names its own help. */
function hintAtHelp(command: Command, path: string): void {
  command.showHelpAfterError(`(see ${path} --help)`);
  for (const each of command.commands) hintAtHelp(each, `${path} ${each.name()}`);
}

/** An empty option or id is a mistake, such as an unset variable of a script. */
function refuseEmptyValues(command: Command): void {
  const [first] = command.registeredArguments;
  if (first?.required && command.args.includes("")) {
    command.error(`heddle: <${first.name()}> "": the value is empty.`);
  }
  for (let at: Command | null = command; at; at = at.parent) {
    for (const option of at.options) {
      const name = option.attributeName();
      if (at.getOptionValueSource(name) !== "cli" || at.getOptionValue(name) !== "") continue;
      command.error(`heddle: ${option.long} "": the value is empty; give one or omit the option.`);
    }
  }
}

function addUp(program: Command, lazy: Lazy): void {
  program
    .command("up")
    .description("run a cluster on this machine: masters, workers, parameter servers")
    .option("--masters <n>", "number of masters: 1, 3 or 5", "1")
    .option("--workers <n>", "number of workers", "1")
    .option("--parameter-servers <n>", "number of parameter servers", "1")
    .option("--port <port>", "HTTP port of the first master", "8080")
    .option("--data <dir>", "data directory (default: HEDDLE_DATA, then ~/.heddle)")
    .option(
      "--models-cache <dir>",
      "cache of model weights (default: HEDDLE_MODELS_CACHE, then DIR/models)",
    )
    .option("--model <file>", "GGUF file to serve")
    .option(
      "--profile <name>",
      "models to serve: demo (tiny real model), small (0.5B), gpu (all), tiny (random weights)",
    )
    .option("--simulate-gpus <spec>", "simulated GPUs of each worker, for example 8xH100-80GB")
    .option("--labels <name=value,...>", "labels of each worker, for the node affinity of jobs")
    .option("--taints <name,...>", "taints of each worker; jobs need a matching toleration")
    .option("--rack <name>", "rack of this machine")
    .option("--fabric <name>", "InfiniBand fabric of this machine")
    .option("--local-ssd-gb <gb>", "local SSD that each worker offers to jobs")
    .option("--io-operations-per-sec <n>", "disk operations per second that each worker offers")
    .option("--network-gbps <gbps>", "network bandwidth that each worker offers")
    .option("--max-tasks <n>", "maximum number of tasks on each worker")
    .option("--worker-memory <mib>", "memory of each worker for jobs and models, in MiB")
    .option("--upstreams <file>", "JSON file: servers for models, their keys, commands")
    .option("--artifacts-replica <place>", "DIR or s3://BUCKET/PREFIX for copies of job artifacts")
    .option("--device <device>", "device for models: cpu or a GPU index (default: cpu)")
    .option("--plugins <files>", "comma-separated plugins: files, folders, packages, lists (.json)")
    .option("--executor <plugin.name>", "executor of a plugin for tasks (default: process)")
    .option("--task-users <range>", "user ids for tasks, for example 200000-200999, or own")
    .option(
      "--task-isolation <kind>",
      "required or optional: whether jobs may run without isolation",
    )
    .option("--task-writable <paths>", "further paths that isolated tasks may write to")
    .option("--tls", "use TLS between the processes")
    .option("--secrets-key-file <file>", "file with the keys that encrypt the masters' data")
    .option("--once", "exit after the self-check, with 0 if it succeeds")
    .option("--verbose", "same as --log-level info")
    .option(
      "--log-level <level>",
      "minimum level of process logs to show: debug, info, warn, error",
      "warn",
    )
    .action(lazy(async () => (await import("./commands/up.ts")).up));
}

function addChat(program: Command, lazy: Lazy): void {
  program
    .command("chat")
    .description("chat with a model; without a prompt, start a conversation")
    .argument("[prompt]", "prompt; `-` reads it from standard input")
    .option("--model <id>", "model id (default: the first ready model)")
    .option("--system <text>", "system message")
    .option("--max-tokens <n>", "maximum length of the answer in tokens")
    .option("--temperature <t>", "sampling temperature, 0 to 2; 0 is deterministic")
    .action(lazy(async () => (await import("./commands/chat.ts")).chat));
}

function scalingFlags(command: Command): Command {
  return command
    .option("--min <n>", "fewest replicas when they follow the load (default: 0)")
    .option("--max <n>", "most replicas when they follow the load (default: 1)")
    .option("--idle-unload <seconds>", "with --min 0: no replica after this time without calls")
    .option("--target-queue <calls>", "waiting calls per replica above which there are more")
    .option("--target-ttft <ms>", "time to the first token above which there are more replicas")
    .option("--cool-down <seconds>", "pause between two changes");
}

function addReaders(program: Command, lazy: Lazy): void {
  const models = program.command("models").description("manage models");
  models
    .command("list")
    .description("list models with their weights and replicas")
    .action(lazy(async () => (await import("./commands/models.ts")).listModelsCommand));
  models
    .command("pull")
    .description("download the weights of a model to a worker and wait until it is ready")
    .argument("<id>", "model id")
    .action(lazy(async () => (await import("./commands/models.ts")).pullModel));
  const register = models
    .command("register")
    .description("register a model and its weights (idempotent)")
    .argument("<id>", "model id")
    .requiredOption("--source <url>", "source of the weights: hf://..., https://... or file://...")
    .option("--replicas <n>", "number of replicas, or every-worker (default: 1)")
    .option(
      "--gpus <n>",
      "GPUs per replica, of one node, allocated by the scheduler (default: none)",
    )
    .option("--gpu-type <types>", "comma-separated accepted GPU types")
    .option("--gpu-memory-gb <gb>", "minimum GPU memory in GB")
    .option("--placement <mode>", "auto, whole, or sharded: several workers divide the model")
    .option("--max-stages <n>", "the most workers that divide the model")
    .option("--adapter-of <id>", "the source is a LoRA adapter over that model")
    .option("--adapter-scale <factor>", "strength of the adapter (default: 1)");
  scalingFlags(register).action(
    lazy(async () => (await import("./commands/models.ts")).registerModel),
  );
  const update = models
    .command("update")
    .description("set a model's replicas: a number, or bounds within which it follows the load")
    .argument("<id>", "model id")
    .option("--replicas <n>", "a fixed number of replicas, or every-worker");
  scalingFlags(update).action(lazy(async () => (await import("./commands/models.ts")).updateModel));
  models
    .command("remove")
    .description("remove a model, and its replicas unless another model uses them")
    .argument("<id>", "model id")
    .action(lazy(async () => (await import("./commands/models.ts")).removeModel));
  program
    .command("endpoints")
    .description("manage cluster addresses")
    .command("list")
    .description("list the configured addresses and show the active one")
    .action(lazy(async () => (await import("./commands/endpoints.ts")).listEndpoints));
  program
    .command("health")
    .description("show cluster health; exits with 7 if unhealthy")
    .action(lazy(async () => (await import("./commands/health.ts")).health));
  program
    .command("doctor")
    .description("check this machine and the cluster for faults; exits with 1 if there are errors")
    .option("--data <dir>", "data directory (default: HEDDLE_DATA, then ~/.heddle)")
    .option("--port <port>", "HTTP port of the first master of `heddle up`", "8080")
    .option("--masters <n>", "number of masters of `heddle up`", "1")
    .option("--json", "same as --output json")
    .action(lazy(async () => (await import("./doctor/doctor.ts")).doctor));
}

function addTop(program: Command, lazy: Lazy): void {
  program
    .command("top")
    .description("show nodes, GPUs, jobs and replicas, refreshed until q or Ctrl-C")
    .option("--once", "print them once")
    .option("--interval <seconds>", "time between two readings", "2")
    .action(lazy(async () => (await import("./top/top.ts")).top));
}

function addKeys(program: Command, lazy: Lazy): void {
  const keys = program.command("keys").description("manage API keys");
  limitFlags(keys.command("create").description("create a key and print it; it is shown only once"))
    .argument("<name>", "name of the key")
    .option("--role <name>", "role of the key, in place of scopes")
    .option("--scopes <list>", "comma-separated scopes")
    .option("--project <name>", "project that the key is bound to (default: default)")
    .option("--owner <name>", "user or service that answers for the key")
    .option("--service-account <name>", "service account that the key belongs to")
    .option("--models <list>", "comma-separated models that the key may call (default: all)")
    .option("--expires <time>", "when it ends: 12h, 30d, or a time as 2027-01-31T00:00:00Z")
    .option("--deterministic", "give equal answers to equal calls, unless a call says otherwise")
    .action(lazy(async () => (await import("./commands/keys.ts")).createKey));
  keys
    .command("list")
    .description("list keys")
    .action(lazy(async () => (await import("./commands/keys.ts")).listKeys));
  keys
    .command("rotate")
    .description("replace a key; the old one remains valid for the overlap")
    .argument("<id>", "key id: the eight characters after hdl_<environment>_")
    .option(
      "--overlap <time>",
      "how long the old key remains valid: 0, 15m, 24h, 7d (default: 24h)",
    )
    .action(lazy(async () => (await import("./commands/keys.ts")).rotateKey));
  keys
    .command("revoke")
    .description("revoke a key")
    .argument("<id>", "key id: the eight characters after hdl_<environment>_")
    .action(lazy(async () => (await import("./commands/keys.ts")).revokeKey));
}

function readVersion(): string {
  const manifest = readFileSync(new URL("../package.json", import.meta.url), "utf8");
  return (JSON.parse(manifest) as { version: string }).version;
}
