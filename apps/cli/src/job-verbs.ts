import { type Command, Option } from "commander";
import type { Lazy } from "./cluster-verbs.ts";

/** Adds `heddle jobs`, `heddle workers`, `heddle queues` and `heddle projects`. */
export function addJobs(program: Command, lazy: Lazy): void {
  const jobs = program.command("jobs").description("manage jobs");
  addSubmission(jobs, lazy);
  addReaders(jobs, lazy);
  addOutputs(jobs, lazy);
  addChanges(jobs, lazy);
  addWorkers(program, lazy);
  addQueues(program, lazy);
  addProjects(program, lazy);
}

/** The flags that make a spec or override a file's. */
function addSpecFlags(command: Command): Command {
  return command
    .argument("[file]", "job spec in YAML or JSON; `-` reads standard input")
    .option(
      "--name <name>",
      "job name, unique among the active jobs of its project (default: generated)",
    )
    .option("--command <line>", "shell command to run")
    .option("--image <image>", "container image")
    .option("--project <name>", "project of the job")
    .option("--queue <name>", "queue of the job")
    .option("--tasks <n>", "number of tasks, which start together")
    .option("--gpus <n>", "GPUs of the whole job; below 1: a share of one GPU")
    .option("--cpus <n>", "CPU cores of the whole job")
    .option("--memory-gb <n>", "memory of the whole job, in GB")
    .option("--priority <n>", "priority, -1000 to 1000; higher is scheduled first");
}

function addSubmission(jobs: Command, lazy: Lazy): void {
  addSpecFlags(jobs.command("submit").description("submit a job and print its id"))
    .option("--watch", "show its updates until it ends")
    .option("--wait", "wait until it ends; exits with 8 if it fails")
    .option("--dry-run", "show the scheduling result without submitting")
    .option("--idempotency-key <key>", "key that makes a repeated submission return the same job")
    .action(lazy(async () => (await import("./commands/jobs/job-submit.ts")).submitJobCommand));
  addSpecFlags(
    jobs.command("explain").description("explain why a job waits, or whether a spec could start"),
  )
    .option("--at <position>", "replay the decision with the state at a position of the log")
    .action(lazy(async () => (await import("./commands/jobs/job-explain.ts")).explainJob));
}

function addReaders(jobs: Command, lazy: Lazy): void {
  jobs
    .command("list")
    .description("list jobs, newest first")
    .option("--state <states>", "comma-separated states")
    .option("--project <name>", "filter by project")
    .option("--queue <name>", "filter by queue")
    .option("--name <name>", "filter by name")
    .option("--algorithm <name>", "filter by algorithm")
    .option("--label <key[=value]>", "filter by label")
    .option("--since <time>", "submitted since this time, for example 2026-01-31T12:00:00Z")
    .option("--limit <n>", "maximum number of jobs", "100")
    .option("--watch", "refresh every two seconds")
    .action(lazy(async () => (await import("./commands/jobs/jobs.ts")).listJobsCommand));
  jobs
    .command("get")
    .description("show a job")
    .argument("<job>", "job id or name")
    .action(lazy(async () => (await import("./commands/jobs/jobs.ts")).getJob));
  jobs
    .command("watch")
    .description("show the updates of a job until it ends")
    .argument("<job>", "job id or name")
    .action(lazy(async () => (await import("./commands/jobs/job-watch.ts")).watchJob));
  jobs
    .command("wait")
    .description("wait until a job ends; exits with 8 unless it succeeds")
    .argument("<job>", "job id or name")
    .action(lazy(async () => (await import("./commands/jobs/job-watch.ts")).waitForJob));
}

/** What tasks leave: lines, numbers and files. */
function addOutputs(jobs: Command, lazy: Lazy): void {
  jobs
    .command("logs")
    .description("print the logs of a job")
    .argument("<job>", "job id or name")
    .option("-f, --follow", "follow the logs until the job ends")
    .option("--tail <n>", "number of lines from the end of each log")
    .option(
      "--since <time>",
      "time, for example 2026-01-31T12:00:00Z, or duration, for example 10m",
    )
    .option("--rank <n>", "comma-separated ranks")
    .addOption(new Option("--stream <name>", "output stream").choices(["stdout", "stderr", "both"]))
    .option("--attempt <n>", "attempt, or `all` (default: the latest)")
    .action(lazy(async () => (await import("./commands/jobs/job-logs.ts")).printLogs));
  jobs
    .command("metrics")
    .description("show the numbers that a job has reported, or the curves of some")
    .argument("<job>", "job id or name")
    .argument("[name...]", "numbers to show by step, for example `loss`")
    .option("--from <step>", "first step")
    .option("--to <step>", "last step")
    .option("--points <n>", "maximum number of points of each", "20")
    .option("--attempt <n>", "attempt (default: all)")
    .option("--rank <n>", "rank of the task (default: 0)")
    .action(lazy(async () => (await import("./commands/jobs/job-metrics.ts")).jobMetrics));
  jobs
    .command("artifacts")
    .description("list the artifacts of a job, or download one")
    .argument("<job>", "job id or name")
    .argument("[name]", "artifact to download")
    .option(
      "-O, --output-file <file>",
      "output file (default: the artifact's name); `-` writes to standard output",
    )
    .option("--rank <n>", "rank of the task (default: the lowest that has it)")
    .action(lazy(async () => (await import("./commands/jobs/job-artifacts.ts")).jobArtifacts));
}

function addChanges(jobs: Command, lazy: Lazy): void {
  const changes = [
    ["cancel", "cancel a job"],
    ["suspend", "checkpoint a job and release its resources until it is resumed"],
    ["resume", "resume a suspended job"],
  ] as const;
  for (const [verb, text] of changes) {
    jobs
      .command(verb)
      .description(text)
      .argument("<job...>", "job ids or names")
      .action(lazy(async () => (await import("./commands/jobs/jobs.ts")).jobChange(verb)));
  }
}

function addWorkers(program: Command, lazy: Lazy): void {
  const workers = program.command("workers").description("manage workers");
  workers
    .command("list")
    .description("list workers and parameter servers")
    .action(lazy(async () => (await import("./commands/workers.ts")).listWorkers));
  workers
    .command("get")
    .description("show a worker")
    .argument("<worker>", "worker id or name")
    .action(lazy(async () => (await import("./commands/workers.ts")).getWorker));
  workers
    .command("drain")
    .description("drain a worker: its tasks checkpoint and move, and it accepts no new ones")
    .argument("<worker>", "worker id or name")
    .option("--deadline <seconds>", "seconds until remaining tasks are killed (default: 600)")
    .action(lazy(async () => (await import("./commands/workers.ts")).drainWorker));
  workers
    .command("resume")
    .description("cancel a drain")
    .argument("<worker>", "worker id or name")
    .action(lazy(async () => (await import("./commands/workers.ts")).resumeWorker));
  workers
    .command("revoke")
    .description("revoke a node's certificates: masters refuse it until it joins again")
    .argument("<worker>", "worker id or name")
    .action(lazy(async () => (await import("./commands/workers.ts")).revokeWorker));
}

function addQueues(program: Command, lazy: Lazy): void {
  const queues = program.command("queues").description("manage queues");
  queues
    .command("list")
    .description("list queues")
    .action(lazy(async () => (await import("./commands/queues.ts")).listQueues));
  queues
    .command("set")
    .description("create or replace a queue; unset options get their defaults")
    .argument("<name>", "name")
    .addOption(
      new Option("--strategy <name>", "placement strategy").choices([
        "binpack",
        "spread",
        "fragmentation",
      ]),
    )
    .option("--max-length <n>", "maximum number of jobs (default: unlimited)")
    .action(lazy(async () => (await import("./commands/queues.ts")).setQueueCommand));
}

function addProjects(program: Command, lazy: Lazy): void {
  const projects = program
    .command("projects")
    .description("manage projects: fair shares and quotas");
  projects
    .command("list")
    .description("list projects")
    .action(lazy(async () => (await import("./commands/projects.ts")).listProjects));
  projects
    .command("get")
    .description("show a project")
    .argument("<name>", "name")
    .action(lazy(async () => (await import("./commands/projects.ts")).getProject));
  projects
    .command("set")
    .description("create or replace a project; unset options get their defaults")
    .argument("<name>", "name")
    .option("--weight <n>", "fair-share weight (default: 1)")
    .option("--gpus <n>", "maximum GPUs in use (default: unlimited)")
    .option("--gpu-hours <n>", "GPU-hours per 30 days (default: unlimited)")
    .option("--max-jobs <n>", "maximum number of queued and running jobs (default: unlimited)")
    .option("--storage-gb <n>", "maximum of what it stores, in GB (default: unlimited)")
    .action(lazy(async () => (await import("./commands/projects.ts")).setProjectCommand));
}
