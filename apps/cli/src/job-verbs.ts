import { type Command, Option } from "commander";
import type { Lazy } from "./cluster-verbs.ts";

/** Adds `heddle jobs`, `heddle workers`, `heddle queues` and `heddle projects`. */
export function addJobs(program: Command, lazy: Lazy): void {
  const jobs = program.command("jobs").description("work that the cluster does");
  addSubmission(jobs, lazy);
  addReaders(jobs, lazy);
  addChanges(jobs, lazy);
  addWorkers(program, lazy);
  addQueues(program, lazy);
  addProjects(program, lazy);
}

/** The flags that make a spec or override a file's. */
function addSpecFlags(command: Command): Command {
  return command
    .argument("[file]", "the job's spec in YAML or JSON; `-` reads it from standard input")
    .option("--name <name>", "unique among the live jobs of its project")
    .option("--command <line>", "the shell line to run")
    .option("--image <image>", "the container image to run it in")
    .option("--project <name>", "whom it counts for")
    .option("--queue <name>", "the queue that it waits in")
    .option("--tasks <n>", "how many alike tasks start together")
    .option("--gpus <n>", "GPUs of the whole job; a share below 1 is a part of one")
    .option("--cpus <n>", "CPU cores of the whole job")
    .option("--memory-gb <n>", "memory of the whole job, in GB")
    .option("--priority <n>", "-1000 to 1000; higher goes first");
}

function addSubmission(jobs: Command, lazy: Lazy): void {
  addSpecFlags(jobs.command("submit").description("submit a job; prints its id"))
    .option("--watch", "show its updates until it has ended")
    .option("--wait", "wait until it has ended; exit code 8 when it failed")
    .option("--dry-run", "say what would become of it, and change nothing")
    .option("--idempotency-key <key>", "submitted again under the same key, it is the same job")
    .action(lazy(async () => (await import("./commands/jobs/job-submit.ts")).submitJobCommand));
  addSpecFlags(
    jobs.command("explain").description("say why a job waits, or would: a job's id, or a spec"),
  ).action(lazy(async () => (await import("./commands/jobs/job-explain.ts")).explainJob));
}

function addReaders(jobs: Command, lazy: Lazy): void {
  jobs
    .command("list")
    .description("list the jobs, newest first")
    .option("--state <states>", "one, or several separated by commas")
    .option("--project <name>", "only of this project")
    .option("--queue <name>", "only of this queue")
    .option("--name <name>", "only of this name")
    .option("--algorithm <name>", "only of this algorithm")
    .option("--label <key[=value]>", "only with this label")
    .option("--since <time>", "submitted then or later, as 2026-01-31T12:00:00Z")
    .option("--limit <n>", "how many at most", "100")
    .option("--watch", "list them again every two seconds")
    .action(lazy(async () => (await import("./commands/jobs/jobs.ts")).listJobsCommand));
  jobs
    .command("get")
    .description("show a job")
    .argument("<id>", "the job")
    .action(lazy(async () => (await import("./commands/jobs/jobs.ts")).getJob));
  jobs
    .command("logs")
    .description("print what its tasks wrote")
    .argument("<id>", "the job")
    .option("-f, --follow", "go on until the job has ended")
    .option("--tail <n>", "only the last lines of each log")
    .option("--since <time>", "as 2026-01-31T12:00:00Z, or a span before now as 10m")
    .option("--rank <n>", "only of this task; several separated by commas")
    .addOption(new Option("--stream <name>", "only one").choices(["stdout", "stderr", "both"]))
    .option("--attempt <n>", "an earlier attempt, or `all`")
    .action(lazy(async () => (await import("./commands/jobs/job-logs.ts")).printLogs));
  jobs
    .command("artifacts")
    .description("list what its tasks have left, or download one of it")
    .argument("<id>", "the job")
    .argument("[name]", "the one to download")
    .option("-O, --output-file <file>", "where it goes (else its own name); `-` prints it")
    .option("--rank <n>", "of this task (else of the lowest that left one)")
    .action(lazy(async () => (await import("./commands/jobs/job-artifacts.ts")).jobArtifacts));
  jobs
    .command("watch")
    .description("show a job's updates until it has ended")
    .argument("<id>", "the job")
    .action(lazy(async () => (await import("./commands/jobs/job-watch.ts")).watchJob));
  jobs
    .command("wait")
    .description("wait until a job has ended; exit code 8 when it did not succeed")
    .argument("<id>", "the job")
    .action(lazy(async () => (await import("./commands/jobs/job-watch.ts")).waitForJob));
}

function addChanges(jobs: Command, lazy: Lazy): void {
  const changes = [
    ["cancel", "end a job for good"],
    ["suspend", "have a job checkpoint and give up its places until it is resumed"],
    ["resume", "put a suspended job back into its queue"],
  ] as const;
  for (const [verb, text] of changes) {
    jobs
      .command(verb)
      .description(text)
      .argument("<id...>", "the jobs, one after the other")
      .action(lazy(async () => (await import("./commands/jobs/jobs.ts")).jobChange(verb)));
  }
}

function addWorkers(program: Command, lazy: Lazy): void {
  const workers = program.command("workers").description("the workers of the cluster");
  workers
    .command("list")
    .description("list the workers and parameter servers, and their load")
    .action(lazy(async () => (await import("./commands/workers.ts")).listWorkers));
  workers
    .command("get")
    .description("show a worker, by its id or name")
    .argument("<worker>", "its id or name")
    .action(lazy(async () => (await import("./commands/workers.ts")).getWorker));
  workers
    .command("drain")
    .description("have its tasks checkpoint and move; it takes nothing new")
    .argument("<worker>", "its id or name")
    .option("--deadline <seconds>", "when what still runs is ended (else 600)")
    .action(lazy(async () => (await import("./commands/workers.ts")).drainWorker));
  workers
    .command("resume")
    .description("end a drain: it takes work again")
    .argument("<worker>", "its id or name")
    .action(lazy(async () => (await import("./commands/workers.ts")).resumeWorker));
}

function addQueues(program: Command, lazy: Lazy): void {
  const queues = program.command("queues").description("where jobs wait, and how they are placed");
  queues
    .command("list")
    .description("list the queues")
    .action(lazy(async () => (await import("./commands/queues.ts")).listQueues));
  queues
    .command("set")
    .description("make a queue, or set it anew: what no flag names gets its default")
    .argument("<name>", "its name")
    .addOption(
      new Option("--strategy <name>", "how its jobs are placed").choices([
        "binpack",
        "spread",
        "fragmentation",
      ]),
    )
    .option("--max-length <n>", "how many jobs it holds (else as many as there are)")
    .action(lazy(async () => (await import("./commands/queues.ts")).setQueueCommand));
}

function addProjects(program: Command, lazy: Lazy): void {
  const projects = program
    .command("projects")
    .description("whom jobs count for: their shares, quotas and use");
  projects
    .command("list")
    .description("list the projects")
    .action(lazy(async () => (await import("./commands/projects.ts")).listProjects));
  projects
    .command("get")
    .description("show a project")
    .argument("<name>", "its name")
    .action(lazy(async () => (await import("./commands/projects.ts")).getProject));
  projects
    .command("set")
    .description("make a project, or set it anew: what no flag names gets its default")
    .argument("<name>", "its name")
    .option("--weight <n>", "its part of what is scarce, beside the others' (else 1)")
    .option("--gpus <n>", "GPUs that it may hold at once (else as many as there are)")
    .option("--gpu-hours <n>", "GPU-hours in 30 days (else no bound)")
    .option("--max-jobs <n>", "jobs that may wait or run (else no bound)")
    .action(lazy(async () => (await import("./commands/projects.ts")).setProjectCommand));
}
